"""Frees a C block twice, as a faulty extension may."""

import ctypes

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
block = libc.malloc(100)
libc.free(block)
libc.free(block)
