"""Addresses of snapshots as functions and lines: what compilers write, and what is missing is said."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import subprocess
import time
from pathlib import Path

import processes
import pytest
from elftools.elf.elffile import ELFFile
from heap import CODE, of_code

from hakmem import outside, places
from hakmem.demangling import plain
from hakmem.memory import Process
from hakmem.names import kernel_lines
from hakmem.snapshots import Mapping, Snapshot
from hakmem.symbols import Frame, Symbols, addresses

SOURCE = """
__attribute__((noinline)) int shown(int x) { return x * 3; }
__attribute__((noinline, noreturn)) void ends(void) { for (;;) __asm__ volatile(""); }
__attribute__((noinline)) static int hidden(int x) { return x * 5; }
int grow(int x) __asm__("_ZN3app4growEiNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");
int grow(int x) { return shown(x) + hidden(x); }
"""
GROW = "app::grow(int, std::string)"


class Built:
    """A library, mapped at CODE."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            elf = ELFFile(file)
            section = elf.get_section_by_name(".note.gnu.build-id")
            self.build_id = next(section.iter_notes())["n_desc"]
            segment = next(each for each in elf.iter_segments("PT_LOAD") if each["p_flags"] & 1)
            self._base = segment["p_vaddr"]
            self._offset = segment["p_offset"]
            self._symbols = {each.name: each.entry for each in elf.get_section_by_name(".symtab").iter_symbols()}

    def mapping(self, path: Path | str | None = None, build_id: str | None = None):
        return of_code(str(path or self.path), self.build_id if build_id is None else build_id, offset=self._offset)

    def end(self, name: str) -> int:
        """The address after the function, as the file has it."""
        return self._symbols[name]["st_value"] + self._symbols[name]["st_size"]

    def after(self, name: str) -> int:
        """The address after the function's last instruction: one that a last call returns to."""
        return CODE + self.end(name) - self._base


def compiled(folder: Path, *options: str, source: str = SOURCE, name: str = "lib.c") -> Built:
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler")
    file = folder / name
    file.write_text(source)
    out = folder / "lib.so"
    command = [compiler, "-O1", "-fPIC", "-shared", "-Wl,--build-id=sha1", *options, "-o", out, file]
    subprocess.run(command, check=True, capture_output=True)
    return Built(out)


def symbols(built: Built, mapping=None, sites=None, **options) -> Symbols:
    names = ("shown", "ends", "hidden", "_ZN3app4growEiNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE")
    taken = Snapshot(process=4242, mappings=[mapping or built.mapping()])
    taken.sites = sites or {number: (0, built.after(name)) for number, name in enumerate(names, 1)}
    return Symbols(taken, **options)


def names_of(found: Symbols) -> list[str]:
    return [found.stack(site)[0].name for site in (1, 2, 3, 4)]


def test_functions_and_lines_of_returning_calls(tmp_path):
    found = symbols(compiled(tmp_path, "-g"))
    assert names_of(found) == ["shown", "ends", "hidden", GROW]
    assert [found.stack(site)[0].place for site in (1, 2, 3, 4)] == [f"lib.c:{line}" for line in (2, 3, 4, 6)]
    assert found.remarks() == []


@pytest.mark.parametrize("option", ["-gdwarf-4", "-gdwarf-5"])
def test_lines_of_each_version_of_dwarf(tmp_path, option):
    frame = symbols(compiled(tmp_path, option)).stack(1)[0]
    assert (frame.file, frame.line) == (str(tmp_path / "lib.c"), 2)


INLINED = """extern int shown(int);
#define INLINE __attribute__((always_inline)) static inline
namespace app { namespace {
struct Cache {
  INLINE int put(int x) {
    return shown(x + 1) + 1;
  }
};
INLINE int store(int x) {
  if (x > 2) { int y = x * 2; return Cache::put(y); }
  return 2;
}
} }
extern "C" int outer(int x) {
  return app::store(x) + 1;
}
extern "C" int plain(int x) { return shown(x) + 1; }
"""


@pytest.mark.parametrize("option", ["-gdwarf-4", "-gdwarf-5"])
def test_calls_that_were_compiled_into_others(tmp_path, option):
    source = INLINED.replace("INLINE int put", "__attribute__((always_inline)) static int put")
    built = compiled(tmp_path, option, "-O2", source=source, name="lib.cc")
    code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", built.path], check=True, capture_output=True, text=True)
    body = code.stdout.partition("<outer>:")[2].partition("\n\n")[0].splitlines()
    call = next(index for index, line in enumerate(body) if "call" in line)
    returns_to = int(body[call + 1].partition(":")[0], 16) + built.after("outer") - built.end("outer")
    found = symbols(built, sites={1: (0, returns_to), 2: (0, built.after("plain"))})
    frames = found.stack(1)
    assert [(frame.name, frame.place, frame.inlined) for frame in frames] == [
        ("app::(anonymous namespace)::Cache::put", "lib.cc:6", True),
        ("app::(anonymous namespace)::store", "lib.cc:10", True),
        ("outer", "lib.cc:15", False),
    ]
    assert {frame.address for frame in frames} == {returns_to - 1}
    assert [len(each) for each in addresses(frames + found.stack(2))] == [3, 1]


def test_without_debug_information_there_are_names_alone(tmp_path):
    found = symbols(compiled(tmp_path))
    assert names_of(found) == ["shown", "ends", "hidden", GROW]
    assert found.stack(1)[0].place == ""


def test_names_that_are_no_text_are_shown_by_their_bytes(tmp_path):
    source = 'int one(void) __asm__("caf\\351"); int one(void) { return 1; }'
    built = compiled(tmp_path, source=source)
    found = symbols(built, sites={1: (0, built.after("caf\ufffd"))})
    assert found.stack(1)[0].name == "caf\\xe9"


def test_what_lies_between_functions_is_in_none(tmp_path):
    gap = '__asm__(".text; .skip 64, 0x90");'
    built = compiled(tmp_path, "-fno-toplevel-reorder", source=f"int one(void) {{ return 1; }} {gap} int two;")
    found = symbols(built, sites={1: (0, built.after("one")), 2: (0, built.after("one") + 32)})
    assert found.stack(1)[0].name == "one"
    assert found.stack(2)[0].name.startswith("lib.so+0x")
    assert found.remarks() == [f"{built.path}: its tables have no function at 1 of 2 addresses"]
    alone = symbols(built, sites={1: (0, built.after("one") + 32)})
    assert alone.stack(1)[0].name.startswith("lib.so+0x")
    assert alone.remarks() == [f"{built.path}: its tables have no function at any of the addresses"]


def test_stripped_library_says_so(tmp_path):
    built = compiled(tmp_path)
    subprocess.run(["strip", built.path], check=True)
    found = symbols(built)
    assert names_of(found)[0] == "shown"
    assert names_of(found)[2].startswith("lib.so+0x")
    assert found.remarks() == [f"{built.path}: stripped: it names only exported functions"]


def test_file_of_another_build_is_not_guessed_from(tmp_path):
    built = compiled(tmp_path)
    found = symbols(built, built.mapping(build_id="ab" * 20))
    assert all(name.startswith("lib.so+0x") for name in names_of(found))
    assert "build id differs" in found.remarks()[0]


def test_missing_file_is_told(tmp_path):
    built = compiled(tmp_path)
    built.path.unlink()
    found = symbols(built, built.mapping(f"{built.path} (deleted)"))
    assert names_of(found)[0].startswith("lib.so+0x")
    assert "can't be opened: No such file" in found.remarks()[0]


def test_file_without_a_build_id_to_compare_is_told(tmp_path):
    built = compiled(tmp_path)
    found = symbols(built, built.mapping(build_id=""))
    assert names_of(found)[0] == "shown"
    assert "no build id to compare" in found.remarks()[0]


@pytest.mark.parametrize("other", [None, "/bin/true"])
def test_debug_information_apart_is_found_by_build_id(tmp_path, other):
    built = compiled(tmp_path, "-g")
    apart = tmp_path / "debug" / ".build-id" / built.build_id[:2] / f"{built.build_id[2:]}.debug"
    apart.parent.mkdir(parents=True)
    subprocess.run(["objcopy", "--only-keep-debug", built.path, apart], check=True)
    subprocess.run(["strip", built.path], check=True)
    if other:  # another build lies there now
        shutil.copy(other, built.path)
    found = symbols(built, debug_root=tmp_path / "debug")
    assert names_of(found) == ["shown", "ends", "hidden", GROW]
    assert found.stack(3)[0].place == "lib.c:4"
    assert found.remarks() == []


def test_jit_functions_are_named_by_perfs_map(tmp_path):
    (tmp_path / "perf-4242.map").write_text(
        "7f0000001000 40 py::work:/srv/app.py\nnot a line\n7f0000002000 10 other one\n"
    )
    sites = {1: (0, 0x7F0000001040), 2: (0, 0x7F0000001041), 3: (0, 0x7F0000002005), 4: (0, 0x10)}
    found = symbols(compiled(tmp_path), sites=sites, jit_folder=tmp_path)
    assert names_of(found) == ["py::work:/srv/app.py", "0x7f0000001040", "other one", "0xf"]
    assert "2 addresses are in no file" in found.remarks()[0]


@pytest.mark.parametrize(("count", "text"), [(1, "1 address is in no file"), (2, "2 addresses are in no file")])
def test_addresses_in_no_file_are_counted(tmp_path, count, text):
    found = symbols(compiled(tmp_path), sites={number: (0, 16 * number) for number in range(1, count + 1)}, jit_folder=tmp_path)
    for site in range(1, count + 1):
        found.stack(site)
    assert found.remarks()[0].startswith(text)


@pytest.mark.parametrize(("count", "text"), [(1, "1 address has no name: "), (2, "2 addresses have no name: ")])
def test_a_process_that_could_not_read_its_mappings_is_told_as_such(tmp_path, count, text):
    """As in a chroot without /proc."""
    taken = Snapshot(process=4242, mappings=[of_code("/lib/closed.so", start=1 << 62)])
    taken.sites = {number: (0, CODE + number) for number in range(1, count + 1)}
    found = Symbols(taken, jit_folder=tmp_path)
    for site in range(1, count + 1):
        found.stack(site)
    assert found.remarks() == [f"{text}the process could not read its own mappings (no /proc in its root?)"]


def test_own_calls_of_a_static_program_are_left_out(tmp_path):
    ours = """
      int user(int x) { return x; }
      __attribute__((noinline)) static int inner(int x) { return x * 3; }
      __attribute__((noinline, visibility("hidden"))) int shared(int x) { return x * 7; }
      __attribute__((noinline)) static int outer(int x) { return x * 5 + inner(x) + shared(x); }
      int hak_malloc(int x) { return outer(x) + inner(x) + 1; }
    """
    built = compiled(tmp_path, "-fno-toplevel-reorder", source=ours, name="hakmem.c")
    user = 0x7F00_0000_0000
    calls = {
        1: (0, user),
        2: (1, built.after("hak_malloc")),
        3: (2, built.after("outer")),
        4: (3, built.after("shared")),
        5: (1, built.after("outer")),  # entered by a tail call
        6: (1, built.after("shared")),
    }
    found = symbols(built, sites=calls)
    assert [found.outside(site) for site in calls] == [1] * 6
    other = symbols(built, of_code("/opt/other"), sites=calls)
    assert [other.outside(site) for site in calls] == list(calls)


@pytest.mark.parametrize("linker", ["bfd", "gold"])
def test_main_of_a_program_that_hakmem_is_linked_with_is_its_own(tmp_path, linker):
    """Code that runs at the start or the end is sorted apart, so that main lies between parts of hakmem's."""
    if not shutil.which(f"ld.{linker}"):
        pytest.skip("no such linker")
    (tmp_path / "program.c").write_text("""
      extern void *hak_malloc(unsigned long);
      __attribute__((section(".text.startup"))) int main(void) { return hak_malloc(3) != (void *)0; }
    """)
    ours = """
      static volatile int count;
      __attribute__((destructor, section(".text.exit"))) static void end(void) { count--; }
      __attribute__((constructor, section(".text.startup"))) static void start(void) { count++; }
      __attribute__((noinline)) static int inner(int x) { return x * 3 + count; }
      __attribute__((noinline, visibility("hidden"))) int shared(int x) { return inner(x) * 7; }
      __attribute__((noinline)) static int outer(int x) { return shared(x) + x; }
      void *hak_malloc(unsigned long bytes) { return (void *)(long)outer((int)bytes); }
    """
    options = ("-fno-toplevel-reorder", f"-fuse-ld={linker}", str(tmp_path / "program.c"))
    built = compiled(tmp_path, *options, source=ours, name="hakmem.c")
    ends = {name: built.after(name) for name in ("end", "main", "start")}
    if linker == "bfd":
        assert ends == dict(sorted(ends.items(), key=lambda each: each[1]))
    calls = {1: (0, ends["main"]), 2: (1, built.after("hak_malloc"))}
    calls |= {3: (2, built.after("outer")), 4: (3, built.after("shared")), 5: (4, built.after("inner"))}
    found = symbols(built, sites=calls)
    assert [found.outside(site) for site in calls] == [1] * 5


def test_what_hakmem_calls_is_not_left_out(tmp_path):
    """A library that hakmem is not linked with begins no stack with hakmem's calls; further out they are those that called the program."""
    code = compiled(tmp_path).mapping()
    taken = Snapshot(mappings=[code, of_code("/usr/lib/libhakmem.so.0", start=CODE + (1 << 30))])
    taken.sites = {1: (0, CODE + (1 << 30) + 16), 2: (1, code.start + 16), 3: (2, CODE + (1 << 30) + 32)}
    found = Symbols(taken)
    assert [found.outside(site) for site in taken.sites] == [0, 2, 2]


def test_own_library_is_left_out(tmp_path):
    sites = {1: (0, 0x10), 2: (1, CODE + 64), 3: (2, CODE + 32)}
    found = symbols(compiled(tmp_path), of_code("/usr/lib/libhakmem.so.0.1.0"), sites=sites)
    assert found.outside(3) == 1


def test_files_that_are_deleted_or_have_another_in_their_place(tmp_path):
    built = compiled(tmp_path)
    deleted = built.mapping(f"{built.path} (deleted)")  # and the same was installed again
    assert names_of(symbols(built, deleted)) == ["shown", "ends", "hidden", GROW]
    shutil.copy("/bin/true", built.path)
    found = symbols(built, deleted)
    assert names_of(found)[0] == "lib.so+0x" + found.stack(1)[0].name.partition("0x")[2]
    assert "the build id differs" in found.remarks()[0]


@contextlib.contextmanager
def within_own_mounts(script: str, *arguments):
    """Where the script has mounted a folder of its own upon the first argument."""
    apart = ["unshare", "-mpf", "--kill-child", "--mount-proc"]
    if not shutil.which("unshare") or subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("may make no namespaces")
    whole = f'mount -t tmpfs none "$1" || exit 1; {script}'
    command = [*apart, "sh", "-c", whole, "sh", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            yield int(child)
        finally:
            process.kill()


RESTS = """
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) void *holds(void) { return malloc(4 << 20); }
int main(int count, char **arguments) {
  if (count > 1) unlink(arguments[0]);
  return !holds() || write(1, "ready\\n", 6) != 6 || pause();
}
"""
RUN = 'cp "$2" "$3" "$1"; echo "a0000 10 made" >"$1/perf-1.map"; LD_PRELOAD="$1/${3##*/}" exec "$1/rests"'


@pytest.mark.parametrize("argument", ["", " deleted"])
def test_files_of_a_process_with_its_own_mounts(hakmem, tmp_path, argument):
    source, mounted = tmp_path / "rests.c", tmp_path / "mounted"
    source.write_text(RESTS)
    mounted.mkdir()
    program = processes.compiled(tmp_path, source)
    with within_own_mounts(RUN + argument, mounted, program, processes.LIBRARY) as process:
        done = hakmem("profile", str(process))
        assert "holds" in done.stdout, done
        words = next(line.split(None, 5) for line in kernel_lines(f"/proc/{process}/maps") if "r-xp" in line)
        start, end = (int(word, 16) for word in words[0].split("-"))
        taken = Snapshot(process=process, mappings=[Mapping(start, end, int(words[2], 16), words[5], "")])
        taken.sites = {1: (0, 0xA0001)}
        for folder, name in ((mounted, "made"), (tmp_path, "0xa0000")):
            found = Symbols(taken, jit_folder=folder)
            assert found.stack(1)[0].name == name
        assert f"/proc/{process}/root{tmp_path}/perf-1.map" in found.remarks()[0]
        taken.mappings = [of_code(words[5])]  # of another one that had its number
        found = Symbols(taken, jit_folder=mounted)
        assert found.stack(1)[0].name == "0xa0000"
        assert f"({mounted}/perf-{process}.map would" in found.remarks()[0]


@pytest.mark.parametrize("kind", ["its own", "of root", "of an ended one", "of another user"])
def test_a_map_of_functions_may_be_only_the_processs_own(tmp_path, kind):
    """Anybody may write to /tmp, and numbers of processes come again."""
    source = tmp_path / "rests.c"
    source.write_text(RESTS)
    program, before = processes.compiled(tmp_path, source), time.time()
    with processes.running(program) as process:
        file = tmp_path / f"perf-{process.pid}.map"
        file.write_text("a0000 10 made\n")
        if kind == "of an ended one":
            os.utime(file, (before - 10, before - 10))
        if kind in ("of root", "of another user"):
            if os.geteuid() != 0:
                pytest.skip("only root gives files away")
            os.chown(file, 0 if kind == "of root" else 65534, -1)
        found = Symbols(outside.read(Process(process.pid)), jit_folder=tmp_path)
        found._snapshot.sites = {1: (0, 0xA0001)}
        name, remarks = found.stack(1)[0].name, found.remarks()
    if kind in ("its own", "of root"):
        assert (name, remarks) == ("made", [])
        return
    why = {"of an ended one": "it was written before the process began", "of another user": "its owner is not the process's user"}
    assert name == "0xa0000"
    assert remarks[0] == f"{file}: not used for names: {why[kind]}"


OTHER = """
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) void *another(void) { return malloc(4 << 20); }
__attribute__((noinline)) void *other(void) { return another(); }
int main(void) { return !other() || pause(); }
"""


def without_build_ids(folder: Path) -> tuple[Path, Path]:
    """The program that rests, and another one with other functions at its places."""
    found = []
    for name, source in (("rests.c", RESTS), ("other.c", OTHER)):
        (folder / name).write_text(source)
        found.append(processes.compiled(folder, folder / name, "-Wl,--build-id=none"))
    return found[0], found[1]


@pytest.mark.parametrize("argument", ["", " deleted"])
def test_the_readers_own_file_is_not_taken_for_one_of_another_mount(hakmem, tmp_path, argument):
    """Without a build id to tell them apart."""
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    program, other = without_build_ids(tmp_path)
    shutil.copy(other, mounted / "rests")
    with within_own_mounts(RUN + argument, mounted, program, processes.LIBRARY) as process:
        done = hakmem("profile", str(process))
    assert "holds" in done.stdout, done
    assert "other" not in done.stdout and str(mounted / "rests") not in done.stderr


@pytest.mark.parametrize("replaced", [False, True])
def test_a_program_that_is_deleted_or_replaced_needs_no_build_id_while_it_runs(hakmem, tmp_path, replaced):
    program, other = without_build_ids(tmp_path)
    with processes.running(program) as process:
        program.unlink()
        if replaced:
            other.rename(program)
        done = hakmem("profile", str(process.pid))
    assert "holds" in done.stdout, done
    assert "another" not in done.stdout and str(program) not in done.stderr


def test_another_file_is_not_taken_for_the_one_that_a_process_has_mapped(tmp_path, monkeypatch):
    """Where nothing leads to that any more."""
    program, other = without_build_ids(tmp_path)
    with processes.running(program) as process:
        taken = outside.read(Process(process.pid))
        mapping = next(each for each in taken.mappings if each.path == str(program))
        kept = program.rename(tmp_path / "kept")
        monkeypatch.setattr(places, "_map_file", lambda *_words: "/nowhere")  # as to those who may not
        monkeypatch.setattr(places, "_exe", lambda *_words: "/nowhere")
        shutil.copy(other, program)
        taken.mappings, taken.sites = [dataclasses.replace(mapping, path=str(kept))], {1: (0, mapping.start + 1)}
        assert places.itself(process.pid, taken.mappings[0]) == ["/nowhere", f"/proc/{process.pid}/root{kept}", str(kept)]
        kept.unlink()
        taken.mappings = [dataclasses.replace(mapping, path=f"{kept} (deleted)")]
        shutil.copy(other, kept)
        found = Symbols(taken)
        assert found.stack(1)[0].name.startswith("kept+0x")
        assert found.remarks() == [f"{kept} (deleted): it can't be opened, and has no build id to find it elsewhere by"]
    taken.process = process.pid  # it has ended: what is there may be the file, or not
    taken.mappings = [dataclasses.replace(mapping, path=str(kept))]
    found = Symbols(taken)
    found.stack(1)
    assert any("no build id to compare" in remark for remark in found.remarks())


def test_what_only_passes_memory_on_is_not_who_wanted_it(tmp_path):
    built = compiled(tmp_path)
    sites = {1: (0, built.after("shown")), 2: (1, CODE + (1 << 30) + 16), 3: (0, CODE + (1 << 30) + 16)}
    taken = Snapshot(sites=sites, mappings=[built.mapping(), of_code("/lib/libc.so.6", start=CODE + (1 << 30))])
    found = Symbols(taken)
    assert [frame.name for frame in found.wanting(2)] == ["shown"]
    assert [frame.name for frame in found.wanting(3)] == ["libc.so.6+0xf"]  # there is nobody else
    assert [name for name, _ in found.calls(2).shown] == ["shown"]
    assert [name for name, _ in found.calls(2).frames] == [frame.name for frame in found.stack(2)] != ["shown"]


@pytest.mark.parametrize(
    ("function", "file", "passes"),
    [
        ("<hakmem::block::Hakmem as core::alloc::global::GlobalAlloc>::alloc", "", True),
        ("__rustc::__rust_alloc", "", True),
        ("<alloc::raw_vec::RawVec<u8>>::grow_one", "", True),
        ("alloc", "/src/bindings/rust/hakmem/src/block.rs", True),
        ("alloc", "/registry/hakmem-0.1.0/src/block.rs", True),
        ("grow_one<u8>", "/rustc/0123456789abcdef/library/alloc/src/raw_vec/mod.rs", True),
        ("resize<u8>", "/registry/hashbrown-0.15.2/src/raw/mod.rs", True),
        ("alloc", "/app/src/block.rs", False),
        ("core::Engine::load()", "/app/core/engine.cpp", False),
        ("<alloc::vec::Vec<alloc::vec::Vec<u8>> as rs::Load>::load_rows", "", False),
        ("<std::collections::hash::map::HashMap<u64, fn(u8) -> u8> as rs::Cachex>::fill_cache", "", False),
        ("<rs::Text as core::clone::Clone>::clone", "", False),
        ("<&mut rs::Text as core::fmt::Write>::write_str", "", False),
        ("<usize as core::fmt::Display>::fmt", "", True),
        ("<alloc::vec::Vec<rs::Text> as core::clone::Clone>::clone", "", True),
        ("<[alloc::string::String] as alloc::slice::Join<&str>>::join", "", True),
        ("<dyn core::any::Any>::type_id", "", True),
        ("<rs::Text>::grow", "", False),
        ("<cut off", "", False),
        ("app::hold", "", False),
    ],
)
def test_what_rust_only_passes_on(function, file, passes):
    assert Frame(CODE, None, function, function, file, 1).plumbing == passes


@pytest.mark.parametrize(
    ("file", "passes"),
    [
        ("libc.so.6", True),
        ("libc-2.31.so", True),
        ("libc.musl-x86_64.so.1", True),
        ("ld-musl-x86_64.so.1", True),
        ("libc.so", True),
        ("libstdc++.so.6.0.30", True),
        ("libc++.so.1", True),
        ("libc-client.so.2007e", False),
        ("libc-ares.so.2", False),
        ("libc.sorted", False),
    ],
)
def test_libraries_that_only_pass_on(file, passes):
    assert Frame(CODE, of_code(f"/usr/lib/{file}"), "work", "work", "", 0).plumbing == passes


@pytest.mark.parametrize(
    ("symbol", "passes"),
    [
        ("_ZN5alloc4Pool4growEi", False),  # C++
        ("_ZN5alloc3fmt6format17h0123456789abcdefE", True),  # Rust, of old
        ("_RNvNtCslNYArtu3iFV_5alloc3fmt6formatCs6GmmlP4bgsG_1r", True),
        ("alloc::fmt::format", True),  # as something else had it
    ],
)
def test_namespace_that_is_called_as_a_crate_of_rust_is_none(symbol, passes):
    name = plain(symbol)
    assert name.startswith("alloc::")
    assert Frame(CODE, None, symbol, name, "", 0).plumbing == passes


@pytest.mark.parametrize(
    ("symbol", "passes"),
    [
        ("_ZN3svc8load_allIcEESt6vectorIT_SaIS2_EEi", False),  # std::vector<char> svc::load_all<char>(int)
        ("_ZNSt6vectorIcSaIcEE7reserveEm", True),
        ("_ZNKSt6vectorIcSaIcEE4copyEv", True),
        ("_ZNOSt6vectorIcSaIcEE4takeEv", True),
        ("_ZSt8for_eachIPiPFviEET0_T_S4_S3_", True),
        ("_ZNSs4_Rep9_S_createEmmRKSaIcE", True),
        ("_ZZNSt6thread8_M_startEvENKUlvE_clEv", True),
        ("_ZN9__gnu_cxx13new_allocatorIcE8allocateEmPKv", True),
        ("_ZN3hak6detail8allocateEmm", True),
        ("_ZN3hak6detail8allocateEP8hak_heapmm", True),
        ("_ZN3hak9allocatorIiE8allocateEm", True),
        ("_ZN3hak13heap_resource11do_allocateEmm", True),
        ("_ZN3hakC1Ev", False),  # a class of the program's
        ("_ZN4haku6detail8allocateEmm", False),
        ("_Znwm", True),
        ("_ZnamSt11align_val_t", True),
        ("_ZN5State4growEv", False),
        ("_ZN3newEv", False),
    ],
)
def test_what_cxx_only_passes_on(symbol, passes):
    assert Frame(CODE, None, symbol, plain(symbol), "", 0).plumbing == passes
