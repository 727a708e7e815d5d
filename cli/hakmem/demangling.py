"""C++ and Rust names as their programmers write them.

The module demangle reads both; it needs Python 3.11, and Debian does not have it. Without it the C++ runtime reads C++ names, and
rust_demangler Rust names. Names that nothing available can read stay as they are.
"""

from __future__ import annotations

import ctypes
import re
from functools import lru_cache

_RUNTIME = "libstdc++.so.6"
_STRING = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char>>"
_RUST = re.compile(r"_R|_ZN.*17h[0-9a-f]{16}E(\.|$)")
_HASH = re.compile(r"::h[0-9a-f]{16}$")


class Mangled(Exception):
    """A name that cannot be read here."""


@lru_cache(maxsize=None)
def _runtime():
    function = ctypes.CDLL(_RUNTIME).__cxa_demangle
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    release = ctypes.CDLL(None).free
    release.argtypes = [ctypes.c_void_p]
    return function, release


def _of_cxx(symbol: str) -> str:
    try:
        function, release = _runtime()
    except OSError as error:
        raise Mangled(symbol) from error
    text = function(symbol.encode(errors="surrogateescape"), None, None, ctypes.byref(ctypes.c_int()))
    if not text:
        raise Mangled(symbol)
    try:
        return ctypes.string_at(text).decode(errors="replace").replace("> >", ">>").replace("> >", ">>")
    finally:
        release(text)


def _of_rust(symbol: str) -> str:
    try:
        from rust_demangler import demangle, rust_v0
    except ImportError as error:
        raise Mangled(symbol) from error
    rust_v0.print = lambda *_: None  # it prints what it cannot read
    try:
        return _HASH.sub("", demangle(symbol)).replace(":#", "#")
    except Exception as error:  # of many kinds, IndexError among them
        raise Mangled(symbol) from error


def otherwise(symbol: str) -> str:
    """The name as read without the module demangle. Raises Mangled."""
    return _of_rust(symbol) if _RUST.match(symbol) else _of_cxx(symbol)


try:
    from demangle import DemanglingError, demangle
except ImportError:
    DemanglingError, demangle = Mangled, otherwise


def is_cxx(symbol: str) -> bool:
    return symbol.startswith("_Z") and not _RUST.match(symbol)


def plain(symbol: str) -> str:
    """The name as its programmers write it; unchanged if it is not a C++ or Rust name, or cannot be read."""
    if not symbol.startswith(("_Z", "_R")):
        return symbol
    try:
        return demangle(symbol).replace(_STRING, "std::string")
    except (DemanglingError, UnicodeError):
        return symbol
