"""What the command wants of the module demangle, which Debian does not have: C++'s names, by the C++ runtime."""
import ctypes
import functools


class DemanglingError(Exception):
    pass


@functools.cache
def _functions():
    function = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    release = ctypes.CDLL(None).free
    release.argtypes = [ctypes.c_void_p]
    return function, release


def demangle(name):
    try:
        function, release = _functions()
    except OSError as error:
        raise DemanglingError(str(error)) from error
    status = ctypes.c_int()
    text = function(name.encode(), None, None, ctypes.byref(status))
    if not text:
        raise DemanglingError(name)
    try:
        return ctypes.string_at(text).decode(errors="replace")
    finally:
        release(text)
