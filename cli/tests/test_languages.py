"""What docs/languages says of each runtime: what of its memory comes from malloc, and what does not, on real runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from processes import LIBRARY, running

from hakmem import resident
from hakmem.errors import Failure
from hakmem.memory import Process

PROGRAMS = Path(__file__).parent / "languages"
ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "languages"
HELD = 56 << 20
LITTLE = 40 << 20


def command(name: str, *words: str | Path) -> list[str | Path]:
    """By its path, where it is installed."""
    found = shutil.which(name)
    if not found:
        pytest.skip(f"no {name}")
    return [found, *words]


def built_by_go(folder: Path, source: str, **variables: str) -> Path:
    go, out = command("go"), folder / "held"
    environment = os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": ""} | variables
    subprocess.run([*go, "build", "-o", out, PROGRAMS / source], env=environment, check=True, timeout=300)
    return out


def built_by_java(folder: Path) -> Path:
    subprocess.run(command("javac", "-d", folder, PROGRAMS / "Held.java"), check=True, timeout=120)
    return folder


def built_by_cargo(folder: Path, *options: str) -> Path:
    program = command("cargo", "build", "--quiet", "--release", "--locked", "--target-dir", folder)
    subprocess.run([*program, "--manifest-path", PROGRAMS / "rust" / "Cargo.toml", *options], check=True, timeout=300)
    return folder / "release" / "held"


def built_by_cxx(folder: Path, source: str, *libraries: Path) -> Path:
    out = folder / "built"
    options = ["-std=c++17", "-O1", "-g", f"-I{ROOT / 'include'}", PROGRAMS / source, *libraries]
    subprocess.run(command("c++", *options, "-o", out), check=True, timeout=120)
    return out


def held(what: list[str | Path], **variables: str) -> resident.Table:
    """The table of its resident set, once it holds its 64 MiB."""
    with running(*what, **variables) as process:
        table, _ = resident.of_memory(Process(process.pid))
    return table


def assert_from_malloc(table: resident.Table) -> None:
    assert table.of("asked") > HELD


def assert_mapped_by_the_runtime(table: resident.Table) -> None:
    """Go's threads have their stacks in what it maps, so that it counts as stacks."""
    assert table.of("asked") < LITTLE
    assert table.of("anonymous") + table.of("stacks") > HELD


def python(*words: str) -> list[str | Path]:
    return [sys.executable, PROGRAMS / "held.py", *words]


def test_python():
    assert_mapped_by_the_runtime(held(python("heap")))
    assert_from_malloc(held(python("heap"), PYTHONMALLOC="malloc"))
    assert_from_malloc(held(python("long")))
    assert_from_malloc(held(python("numpy")))


def test_java(tmp_path):
    java = [*command("java", "-Xmx256m", "-cp"), built_by_java(tmp_path), "Held"]
    assert_mapped_by_the_runtime(held([*java, "heap"]))
    assert_from_malloc(held([*java, "direct"]))


def test_node():
    node = command("node", PROGRAMS / "held.js")
    assert_mapped_by_the_runtime(held([*node, "heap"]))
    assert_from_malloc(held([*node, "buffers"]))


def test_php():
    php = command("php", PROGRAMS / "held.php")
    assert_mapped_by_the_runtime(held(php))
    assert_from_malloc(held(php, USE_ZEND_ALLOC="0"))
    limited = [php[0], "-d", "memory_limit=8M", php[1]]
    assert_from_malloc(held(limited, USE_ZEND_ALLOC="0"))  # which PHP then does not enforce


def test_ruby():
    ruby = command("ruby", PROGRAMS / "held.rb")
    assert_mapped_by_the_runtime(held([*ruby, "heap"]))
    assert_from_malloc(held([*ruby, "strings"]))


def test_lua():
    assert_from_malloc(held(command("lua", PROGRAMS / "held.lua")))


def test_go_with_cgo(tmp_path):
    program = built_by_go(tmp_path, "held_c.go", CGO_ENABLED="1")
    assert_mapped_by_the_runtime(held([program, "go"]))
    assert_from_malloc(held([program, "c"]))


def test_go_without_cgo_has_no_malloc(hakmem, tmp_path):
    program = built_by_go(tmp_path, "held.go", CGO_ENABLED="0")
    with pytest.raises(Failure, match="no hakmem in it"):
        held([program])
    done = hakmem("run", "--", str(program))
    assert done.stdout == "ready\n" and "runs without hakmem: it is statically linked" in done.stderr


def test_cxx(tmp_path):
    program = built_by_cxx(tmp_path, "held.cpp", LIBRARY)
    assert_from_malloc(held([program, "new"]))
    assert_from_malloc(held([program, "resource"]))


def test_rust(tmp_path):
    assert_from_malloc(held([built_by_cargo(tmp_path)]))


def test_rust_with_the_crate_has_hakmem_inside(hakmem, tmp_path):
    program = built_by_cargo(tmp_path, "--features", "hakmem")
    assert_from_malloc(held([program], LD_PRELOAD=""))
    with running(program, LD_PRELOAD="") as process:
        by_tag = hakmem("profile", str(process.pid), "--by", "tag").stdout
        by_function = hakmem("profile", str(process.pid), "--by", "function").stdout
    assert re.search(r"7[0-2]\.\d MiB .* tag 7 *$", by_tag, re.MULTILINE), by_tag
    # Past all that is Rust's own: Box, Vec, iterators.
    assert re.search(r"7[0-2]\.\d MiB .* held::hold *$", by_function, re.MULTILINE), by_function


@pytest.mark.parametrize("language", ["python", "ruby", "php", "go", "cxx"])
def test_a_double_free_ends_the_program(hakmem, tmp_path, language):
    programs = {
        "python": lambda: [sys.executable, PROGRAMS / "twice.py"],
        "ruby": lambda: command("ruby", PROGRAMS / "twice.rb"),
        "php": lambda: command("php", PROGRAMS / "twice.php"),
        "go": lambda: [built_by_go(tmp_path, "twice_c.go", CGO_ENABLED="1")],
        "cxx": lambda: [built_by_cxx(tmp_path, "twice.cpp")],
    }
    done = hakmem("run", "--", *map(str, programs[language]()))
    assert done.returncode != 0
    function = "operator delete" if language == "cxx" else "free"
    assert re.search(rf"^hakmem: double free: {function}\(0x\w+\): .* class 112$", done.stderr, re.MULTILINE), done.stderr


def test_the_index_has_every_page():
    index = (PAGES / "README.md").read_text()
    pages = {file.name for file in PAGES.glob("*.md")} - {"README.md"}
    assert len(pages) >= 8 and all(f"({page})" in index for page in pages)
