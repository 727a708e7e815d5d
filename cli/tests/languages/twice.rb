# Frees a C block twice, as a faulty extension may.
require "fiddle"
block = Fiddle.malloc(100)
Fiddle.free(block)
Fiddle.free(block)
