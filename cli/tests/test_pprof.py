"""hakmem profile --pprof: the format that `go tool pprof` opens."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess

import pytest
from heap import CODE, Heap, mixed, of_code, text_of

from hakmem import pprof
from hakmem.errors import Failure
from hakmem.symbols import Symbols

SMALL = Heap({64: mixed({2: 30_000, 3: 10_000}, free=500), 48: mixed({2: 3})}, [(4, 3 << 20)])


@pytest.fixture
def taken():
    found = SMALL.sampled(1)
    found.mappings = [of_code("/opt/program", "ab" * 20, offset=0x1000)]
    return found


def decoded(data: bytes):
    return pprof._message("Profile").FromString(gzip.decompress(data))


def test_values_sum_to_what_is_live(taken):
    profile = decoded(pprof.encode(taken, Symbols(taken)))
    text = profile.string_table
    assert text[0] == ""
    types = [(text[each.type], text[each.unit]) for each in profile.sample_type]
    assert types == [("inuse_objects", "count"), ("inuse_space", "bytes"), ("samples", "count")]
    assert text[profile.default_sample_type] == "inuse_space"
    assert (text[profile.period_type.type], text[profile.period_type.unit]) == ("space", "bytes")
    assert profile.period == taken.rate
    assert profile.time_nanos == taken.time * 10**9
    sums = [sum(sample.value[column] for sample in profile.sample) for column in range(3)]
    assert sums == [40_000 + 3 + 1, taken.live_bytes, len(taken.samples)]


def test_labels_addresses_and_mappings(taken):
    profile = decoded(pprof.encode(taken, Symbols(taken)))
    text = profile.string_table
    (mapping,) = profile.mapping
    assert (text[mapping.filename], text[mapping.build_id]) == ("/opt/program", "ab" * 20)
    assert (mapping.memory_start, mapping.memory_limit, mapping.file_offset) == (CODE, CODE + (1 << 20), 0x1000)
    locations = {location.id: location for location in profile.location}
    of_site_4 = next(sample for sample in profile.sample if sample.value[1] == 3 << 20)
    stack = [locations[number] for number in of_site_4.location_id]
    assert [location.address for location in stack] == [CODE + 16 * 4 - 1, CODE + 16 - 1]
    assert all(location.mapping_id == mapping.id for location in stack)
    labels = {text[label.key]: label.num for label in of_site_4.label}
    assert labels == {"bytes": 3 << 20, "tag": 1}
    names = {text[function.name] for function in profile.function}
    assert "(not sampled)" in names
    assert "program+0x103f" in names


def test_what_was_written_is_read(taken):
    stacks = pprof.decode(pprof.encode(taken, Symbols(taken)), "x")
    assert stacks.rate == taken.rate
    assert sum(line.bytes for line in stacks.lines.values()) == taken.live_bytes
    by_name = {key[0][2]: line for key, line in stacks.lines.items()}
    assert by_name["program+0x103f"].variance == 0  # certain
    two = by_name["program+0x101f"]
    assert two.error == pytest.approx(two.bytes / two.uncertain**0.5, rel=0.01)


@pytest.mark.parametrize("data", [b"\x1f\x8bno gzip", gzip.compress(b"\xff\xff\xff"), b"", b"\x0a\x02\x08\x63"])
def test_files_that_are_no_profile_are_told(data):
    with pytest.raises(Failure, match=r"^x: "):
        pprof.decode(data, "x")


def test_go_opens_it(hakmem, taken, tmp_path, environment):
    go = shutil.which("go")
    if not go:
        pytest.skip("no go: Debian's golang-go has it")
    file, out = tmp_path / "heap", tmp_path / "heap.pb.gz"
    file.write_text(text_of(taken))
    assert hakmem("profile", str(file), "--pprof", str(out)).returncode == 0

    def top(*options: str) -> str:
        done = subprocess.run(
            [go, "tool", "pprof", *options, "-top", out],
            env=environment | {"PPROF_TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,  # go builds its tools when they are first used
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    space = top("-unit=B")
    assert "File: program" in space and "Type: inuse_space" in space
    assert f"{taken.live_bytes}B total" in space
    assert re.search(rf"{3 << 20}B .* program\+0x103f", space)
    assert "40004 total" in top("-sample_index=inuse_objects")
