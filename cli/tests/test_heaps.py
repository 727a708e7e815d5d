"""Named heaps in snapshots, in reports and from outside."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
from pathlib import Path

import pytest
from processes import compiled, running

from hakmem import blackbox, outside, pprof_files, snapshots
from hakmem.memory import Process

_SOURCE = r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
  void *(*make)(const char *) = (void *(*)(const char *))dlsym(RTLD_DEFAULT, "hak_heap_new");
  void *(*take)(void *, size_t) = (void *(*)(void *, size_t))dlsym(RTLD_DEFAULT, "hak_heap_malloc");
  void (*end)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "hak_heap_free");
  bool (*say)(int) = (bool (*)(int))dlsym(RTLD_DEFAULT, "hak_profile_write");
  bool (*pprof)(int) = (bool (*)(int))dlsym(RTLD_DEFAULT, "hak_profile_pprof");
  unsigned (*label)(unsigned) = (unsigned (*)(unsigned))dlsym(RTLD_DEFAULT, "hak_tag_set");
  void *gone = make("gone"), *cache = make("a cache"), *none = make("");
  for (int i = 0; i < 20000; i++) memset(take(cache, 300), 1, 300);
  memset(take(cache, 5 << 20), 1, 5 << 20);
  memset(take(none, 3 << 20), 1, 3 << 20);
  memset(take(gone, 3 << 20), 1, 3 << 20);
  memset(malloc(1 << 20), 1, 1 << 20);
  label(7);
  memset(malloc(2 << 20), 1, 2 << 20);
  label(0);
  end(gone);
  if (argc > 1) (void)!say(open(argv[1], O_WRONLY | O_CREAT, 0600));
  if (argc > 2) (void)!pprof(open(argv[2], O_WRONLY | O_CREAT, 0600));
  puts("ready");
  fflush(stdout);
  pause();
}
"""
_CACHE, _NONE = 20000 * 320 + (5 << 20), 3 << 20


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("heaps")
    (folder / "named.c").write_text(_SOURCE)
    return compiled(folder, folder / "named.c", "-ldl")


def lines_of(hakmem, target: str | Path) -> dict[str, int]:
    result = json.loads(hakmem("profile", str(target), "--by", "tag", "--json").stdout)
    return {line["frames"][0]["function"]: line["live"] for line in result["lines"]}


def test_each_heap_is_a_line_by_its_name(hakmem, program, tmp_path):
    file = tmp_path / "heap.hak"
    with running(program, file, HAKMEM_SAMPLE_KB="128", HAKMEM_INSIGHT="2") as process:
        written, seen = snapshots.read(str(file)), outside.read(Process(process.pid))
        from_file, from_outside = lines_of(hakmem, file), lines_of(hakmem, process.pid)
    assert sorted(written.heap_names.values()) == ["", "a_cache"]
    assert seen.heap_names == written.heap_names
    assert snapshots.parse(snapshots.text_of(written)).heap_names == written.heap_names
    for lines in (from_file, from_outside):
        assert {"heap a_cache", "heap (no name)", "no tag"} <= set(lines) and "heap gone" not in lines
        assert lines["heap (no name)"] == pytest.approx(_NONE, rel=0.01)
        assert lines["heap a_cache"] == pytest.approx(_CACHE, rel=0.15)


def tags_of(profile) -> Counter:
    """The live bytes by the label `tag`."""
    text, found = profile.string_table, Counter()
    for sample in profile.sample:
        tags = [text[label.str] if label.str else label.num for label in sample.label if text[label.key] == "tag"]
        assert len(tags) < 2
        found[tags[0] if tags else None] += sample.value[1]
    return found


def test_files_of_pprof_have_the_names(hakmem, program, tmp_path):
    file, inside, tools = (tmp_path / name for name in ("heap.hak", "inside.pb", "tools.pb"))
    with running(program, file, inside, HAKMEM_SAMPLE_KB="128", HAKMEM_INSIGHT="2") as process:
        assert hakmem("profile", str(process.pid), "--pprof", str(tools)).returncode == 0
    message = pprof_files._message("Profile")
    written, seen = message.FromString(inside.read_bytes()), message.FromString(gzip.decompress(tools.read_bytes()))
    for tags in (tags_of(written), tags_of(seen)):
        assert set(tags) == {"heap a_cache", "heap (no name)", 7, None}
        assert tags["heap (no name)"] == pytest.approx(_NONE, rel=0.01)
        assert tags["heap a_cache"] == pytest.approx(_CACHE, rel=0.15)
        assert tags[7] == pytest.approx(2 << 20, rel=0.01)
    assert list(written.string_table).count("heap a_cache") == 1


def test_a_black_box_has_the_names(hakmem, program, tmp_path):
    box = tmp_path / "box"
    with running(program, HAKMEM_BLACKBOX=str(box), HAKMEM_SAMPLE_KB="128", HAKMEM_INSIGHT="2"):
        deadline = time.monotonic() + 60
        while lines_of(hakmem, box).get("tag 7", 0) < 2 << 20:  # the last that is allocated
            assert time.monotonic() < deadline, blackbox.read(str(box))
            time.sleep(0.2)
        lines = lines_of(hakmem, box)
    assert lines["heap (no name)"] == pytest.approx(_NONE, rel=0.01)
    assert lines["heap a_cache"] == pytest.approx(_CACHE, rel=0.15)
    assert not any(name.startswith("tag 2") for name in lines)


def test_a_tag_without_a_heap_is_a_number():
    taken = snapshots.Snapshot(heap_names={5: "cache"})
    assert [taken.tag_text(tag) for tag in (0, 4, 5)] == ["no tag", "tag 4", "heap cache"]
