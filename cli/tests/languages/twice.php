<?php // Frees a C block twice, as a faulty extension may.
$libc = FFI::cdef("void *malloc(size_t size); void free(void *block);");
$block = $libc->malloc(100);
$libc->free($block);
$libc->free($block);
