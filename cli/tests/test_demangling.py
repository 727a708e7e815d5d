"""C++ and Rust names, with the module demangle, where there is one, and without."""

from __future__ import annotations

import sys

import pytest

from hakmem import demangling

NAMES = {
    "_ZNSt6vectorISsSaISsEE9push_backERKSs": "std::vector<std::string, std::allocator<std::string>>::push_back(std::string const&)",
    "_Z4takeRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE": "take(std::string const&)",
    "_Z1fIPPPvEvT_": "void f<void***>(void***)",
    "_ZN1aIS_IS_IiEEE1bEv": "a<a<a<int>>>::b()",
    "_ZN5alloc7raw_vec20RawVecInner$LT$A$GT$16with_capacity_in17haa029d1ad6422389E": "alloc::raw_vec::RawVecInner<A>::with_capacity_in",
    "_ZN3std6thread5spawn28_$u7b$$u7b$closure$u7d$$u7d$17h45dbd10ad847a5a3E": "std::thread::spawn::{{closure}}",
    "_RINvNtNtCsjrHSEGnQ3l9_3std6thread9lifecycle15spawn_uncheckedNCNvCs6xxl1lAjzDf_1a4mains_0uEB10_": (
        "std::thread::lifecycle::spawn_unchecked::<a::main::{closure#1}, ()>"
    ),
    "_RNvC6_123foo3bar": "123foo::bar",
    "_Znwm": "operator new(unsigned long)",
    "_ZNot a name": "_ZNot a name",
    "_ZN\udcff": "_ZN\udcff",
    "_Rot": "_Rot",
    "main": "main",
    "": "",
}


@pytest.fixture(params=["by the module", "otherwise"])
def plain(request, monkeypatch):
    if request.param == "otherwise":
        monkeypatch.setattr(demangling, "demangle", demangling.otherwise)
        monkeypatch.setattr(demangling, "DemanglingError", demangling.Mangled)
    return demangling.plain


@pytest.mark.parametrize("symbol", NAMES)
def test_names_are_as_programmers_write_them(plain, symbol):
    assert plain(symbol) == NAMES[symbol]


def test_what_cannot_be_read_prints_nothing(plain, capfd):
    plain(
        "_RINvNtCsgEmfK2I1SDS_4core3ptr13drop_in_placeINtNtCslNYArtu3iFV_5alloc5boxed3BoxDG0_INtNtNtB4_3ops8function2FnTRL1_INtNtCsjrHSEGnQ3l9_"
        "3std5panic13PanicHookInfoL0_EEEp6OutputuNtNtB4_6marker4SyncNtB2N_4SendEL_EEB1T_"
    )  # rust_demangler can't
    assert capfd.readouterr() == ("", "")


def test_without_the_runtime_and_the_module_names_stay(monkeypatch):
    monkeypatch.setattr(demangling, "_RUNTIME", "libnone.so")
    demangling._runtime.cache_clear()
    for symbol in ("_Znwm", "_RNvC6_123foo3bar"):
        monkeypatch.setitem(sys.modules, "rust_demangler", None)
        with pytest.raises(demangling.Mangled):
            demangling.otherwise(symbol)
