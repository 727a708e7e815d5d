"""hakmem profile --pprof: the format that `go tool pprof` opens."""

from __future__ import annotations

import dataclasses
import gzip
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Hashable

import pytest
from elftools.elf.elffile import ELFFile
from heap import CODE, Heap, mixed, of_code, pin, text_of
from processes import KNOWN, compiled, running

from hakmem import diff, pprof_files, snapshots
from hakmem.errors import Failure
from hakmem.estimates import NOT_SAMPLED, Line, estimate
from hakmem.symbols import Symbols

SMALL = Heap({64: mixed({2: 30_000, 3: 10_000}, free=500), 48: mixed({2: 3})}, [(4, 3 << 20)])


@pytest.fixture
def taken():
    found = SMALL.sampled(1)
    found.mappings = [of_code("/opt/program", "ab" * 20, offset=0x1000)]
    return found


def decoded(data: bytes):
    return pprof_files._message("Profile").FromString(gzip.decompress(data))


def test_values_sum_to_what_is_live(taken):
    profile = decoded(pprof_files.encode(taken, Symbols(taken)))
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


class Inlining(Symbols):
    """As if each call had another one compiled into it."""

    def _calls(self, returns_to):
        [call] = super()._calls(returns_to)
        return [dataclasses.replace(call, symbol="inner", function="inner", file="a.c", line=3, inlined=True), call]


def test_calls_compiled_into_others_are_lines_of_one_place(taken, tmp_path):
    profile = decoded(pprof_files.encode(taken, Inlining(taken)))
    names = {each.id: profile.string_table[each.name] for each in profile.function}
    places = [each for each in profile.location if each.address]
    assert len({each.address for each in places}) == len(places) >= 3
    assert all([names[line.function_id] for line in each.line][0] == "inner" for each in places)
    assert all([line.line for line in each.line] == [3, 0] for each in places)
    files = [tmp_path / "with", tmp_path / "without"]
    for file, symbols in zip(files, (Inlining(taken), Symbols(taken))):
        file.write_bytes(pprof_files.encode(taken, symbols))
    found = diff.compare(*(diff.read(str(file)) for file in files))
    assert [each for each in found.changes if each.change] == []


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "compressed"])
def test_other_commands_say_who_reads_one(hakmem, tmp_path, pack):
    taken = Heap({64: mixed({2: 1000})}).sampled(1)
    file = tmp_path / "heap.pb"
    file.write_bytes(pack(gzip.decompress(pprof_files.encode(taken, Symbols(taken)))))
    for words in (["profile", file], ["resident", file], ["inspect", file, "0x10"]):
        done = hakmem(*map(str, words))
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"hakmem: {file}: a pprof profile, which hakmem diff and go tool pprof read\n"
    assert hakmem("diff", str(file), str(file)).returncode == 0


def test_what_is_pinned_is_two_types_more(taken):
    pin(taken, SMALL, every=2)
    data = pprof_files.encode(taken, Symbols(taken))
    profile = decoded(data)
    text = profile.string_table
    assert [text[each.type] for each in profile.sample_type][3:] == ["pinned_sole", "pinned_shared"]
    assert all(len(sample.value) == 5 for sample in profile.sample)
    sums = [sum(sample.value[column] for sample in profile.sample) for column in range(5)]
    assert sums[:3] == [40_000 + 3 + 1, taken.live_bytes, len(taken.samples)]
    assert sums[4] == sum(stratum.waste for stratum in taken.strata)
    assert 0 <= sums[3] <= sums[4]
    assert text[profile.default_sample_type] == "inuse_space"
    assert sum(line.bytes for line in pprof_files.decode(data, "x").lines.values()) == taken.live_bytes


def test_labels_addresses_and_mappings(taken):
    profile = decoded(pprof_files.encode(taken, Symbols(taken)))
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
    assert labels == {"bytes": 3 << 20, "age": 1, "tag": 1}
    ages = {
        (label.num, text[label.num_unit])
        for sample in profile.sample
        for label in sample.label
        if text[label.key] == "age"
    }
    assert ages == {(1, "seconds"), (60, "seconds")}
    names = {text[function.name] for function in profile.function}
    assert "(not sampled)" in names
    assert "program+0x103f" in names


def test_what_was_written_is_read(taken):
    stacks = pprof_files.decode(pprof_files.encode(taken, Symbols(taken)), "x")
    assert stacks.rate == taken.rate
    assert sum(line.bytes for line in stacks.lines.values()) == taken.live_bytes
    by_name = {key[0][2]: line for key, line in stacks.lines.items()}
    assert by_name["program+0x103f"].variance == 0  # certain
    two = by_name["program+0x101f"]
    assert two.error == pytest.approx(two.bytes / two.uncertain**0.5, rel=0.01)


@pytest.mark.parametrize("data", [b"\x1f\x8bno gzip", gzip.compress(b"\xff\xff\xff"), b"", b"\x0a\x02\x08\x63"])
def test_files_that_are_no_profile_are_told(data):
    with pytest.raises(Failure, match=r"^x: "):
        pprof_files.decode(data, "x")


def test_sample_that_lacks_values_is_told():
    taken = Heap({64: [2] * 100_000}).sampled(1)
    profile = decoded(pprof_files.encode(taken, Symbols(taken)))
    del profile.sample[0].value[1:]
    with pytest.raises(Failure, match="^x: neither"):
        pprof_files.decode(profile.SerializeToString(), "x")


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    """A process's snapshot, and the profile that it has written in the same state. One byte of its path is no UTF-8."""
    folder = tmp_path_factory.mktemp("inside") / os.fsdecode(b"\xff\xc3\xa4")
    folder.mkdir()
    program, file = compiled(folder, KNOWN, "-Wl,--build-id=sha1"), folder / "heap"
    with running(program, "rest", file, HAKMEM_KEEPER="0", HAKMEM_INSIGHT="2"):
        return snapshots.read(str(file)), folder / "heap.pb"


@pytest.fixture(scope="module")
def written(inside):
    return pprof_files._message("Profile").FromString(inside[1].read_bytes())


def labels_of(profile, sample) -> tuple[int, int]:
    """Bytes of a block, and tag."""
    labels = {profile.string_table[label.key]: label.num for label in sample.label}
    return labels.get("bytes", 0), labels.get("tag", 0)


def stack_of(profile, sample) -> tuple[int, ...]:
    """The addresses that its calls return to."""
    addresses = [profile.location[number - 1].address for number in sample.location_id]
    return tuple(address + 1 for address in addresses if address)


def test_a_process_writes_what_the_tool_writes_of_it(inside, written):
    taken, _ = inside
    tools = decoded(pprof_files.encode(taken, Symbols(taken)))

    def said(profile):
        text = profile.string_table
        types = [(text[each.type], text[each.unit]) for each in (*profile.sample_type[:3], profile.period_type)]
        return types, profile.period, text[profile.default_sample_type]

    assert said(written) == said(tools)
    assert len(written.sample_type) == 3  # who keeps pages, it does not tell
    assert 0 <= written.time_nanos - taken.time * 10**9 < 60 * 10**9
    sums = [sum(sample.value[column] for sample in written.sample) for column in range(3)]
    blocks = sum(each.live for each in taken.classes) + taken.large_blocks
    assert sums == [blocks, taken.live_bytes, len(taken.samples)]
    stacks = Counter((tuple(taken.stack(each.site)), each.size, each.tag) for each in taken.samples)
    sampled = [sample for sample in written.sample if sample.label]
    assert Counter((stack_of(written, each), *labels_of(written, each)) for each in sampled) == stacks


def class_by_class(taken):
    """The tool's lines of each class alone, by stack, size and tag: the process doesn't take classes with few samples together."""
    totals: dict[Hashable, Line] = {}
    classes = {each.block_size: [each] for each in taken.classes if each.block_size}
    for size in (*classes, 0):
        samples = [each for each in taken.samples if (0 if each.large else each.size) == size]
        large = {} if size == 0 else {"large_blocks": 0, "large_bytes": 0}
        alone = dataclasses.replace(taken, classes=classes.get(size, []), samples=samples, **large)
        for line in estimate(alone, lambda sample: (tuple(taken.stack(sample.site)), sample.size, sample.tag)):
            total = totals.setdefault(line.key, Line(line.key))
            total.bytes += line.bytes
            total.objects += line.objects
    return list(totals.values())


def test_a_process_shares_out_each_class(inside, written):
    taken, _ = inside
    objects: Counter = Counter()
    shares: Counter = Counter()
    samples: Counter = Counter()
    for sample in written.sample:
        key = (stack_of(written, sample), *labels_of(written, sample)) if sample.label else NOT_SAMPLED
        objects[key] += sample.value[0]
        shares[key] += sample.value[1]
        samples[key] += sample.value[2]
    sizes = {each.block_size for each in taken.classes}
    by_tool = class_by_class(taken)
    assert {line.key for line in by_tool} == shares.keys()
    for line in by_tool:  # each sample's share is rounded to a block, or to a byte of large ones, and so is the tool's line
        grain = line.key[1] if line.key[1] in sizes else 1
        assert abs(shares[line.key] - line.bytes) <= (samples[line.key] + 1) * grain
        assert line.key == NOT_SAMPLED or abs(objects[line.key] - line.objects) <= samples[line.key] + 1
    for each in taken.classes:
        shown = sum(sample.value[0] for sample in written.sample if labels_of(written, sample)[0] == each.block_size)
        assert not each.block_size or shown in (0, each.live)


def test_a_process_names_its_mappings(inside, written):
    taken, _ = inside
    text = written.string_table
    found = [(each.memory_start, each.memory_limit, each.file_offset, text[each.build_id]) for each in written.mapping]
    wanted = [each for each in taken.mappings if each.path]
    assert found == [(each.start, each.end, each.offset, each.build_id) for each in wanted]
    paths = [each.path.encode(errors="surrogateescape").decode(errors="replace") for each in wanted]
    assert [text[each.filename] for each in written.mapping] == [path.replace("\ufffd", "?") for path in paths]
    assert paths[0].endswith("\ufffdä/known")
    with open(wanted[0].path, "rb") as file:
        note = next(ELFFile(file).get_section_by_name(".note.gnu.build-id").iter_notes())
    assert found[0][3] == note["n_desc"]
    for number, location in enumerate(written.location, 1):
        assert location.id == number
        if location.mapping_id:
            mapping = written.mapping[location.mapping_id - 1]
            assert mapping.memory_start <= location.address < mapping.memory_limit
    on_stacks = {number for sample in written.sample if sample.label for number in sample.location_id}
    assert on_stacks
    assert all(written.location[number - 1].mapping_id for number in on_stacks)


def test_profiles_of_processes_are_read(inside):
    taken, file = inside
    stacks = pprof_files.read(str(file))
    assert stacks.rate == taken.rate
    assert sum(line.bytes for line in stacks.lines.values()) == taken.live_bytes


@pytest.fixture(scope="module")
def armed(tmp_path_factory):
    """As `inside`, of a process that counts what it allocates."""
    folder = tmp_path_factory.mktemp("armed")
    program = compiled(folder, KNOWN, "-g")
    with running(program, "rest", folder / "heap", HAKMEM_KEEPER="0", HAKMEM_INSIGHT="2", HAKMEM_EVENTS="1"):
        return snapshots.read(str(folder / "heap")), folder / "heap.pb"


def test_an_armed_process_writes_what_it_allocated_as_the_tool_does(armed):
    taken, file = armed
    written = pprof_files._message("Profile").FromString(file.read_bytes())
    tools = decoded(pprof_files.encode(dataclasses.replace(taken, strata=[]), Symbols(taken)))

    def types(profile):
        return [(profile.string_table[each.type], profile.string_table[each.unit]) for each in profile.sample_type]

    assert types(written) == types(tools)
    assert types(written)[3:] == [("alloc_objects", "count"), ("alloc_space", "bytes")]

    def by_stack(profile, column):
        sums: Counter = Counter()
        for sample in profile.sample:
            assert len(sample.value) == 5 and (sample.value[:3] == [0, 0, 0] or sample.value[3:] == [0, 0])
            name = profile.location[sample.location_id[0] - 1].address or stack_name(profile, sample)
            sums[stack_of(profile, sample) or name] += sample.value[column]
        return +sums

    groups = Counter(tuple(taken.stack(site)) for site, _ in taken.events)
    assert len(groups) >= 3 and max(groups.values()) > 3
    for column, field in ((3, "objects"), (4, "bytes")):
        mine, theirs = by_stack(written, column), by_stack(tools, column)
        assert sum(mine.values()) == sum(theirs.values()) == sum(getattr(each, field) for each in taken.counted.values())
        assert mine[NOT_SAMPLED] == theirs[NOT_SAMPLED]
        for key in mine.keys() | theirs.keys():  # each share is rounded
            assert abs(mine[key] - theirs[key]) <= groups[key if isinstance(key, tuple) else ()]


def stack_name(profile, sample) -> str:
    (line,) = profile.location[sample.location_id[0] - 1].line
    return profile.string_table[profile.function[line.function_id - 1].name]


@pytest.fixture
def go_top(tmp_path, environment):
    go = shutil.which("go")
    if not go:
        pytest.skip("no go: Debian's golang-go has it")

    def top(file, *options: str) -> str:
        done = subprocess.run(
            [go, "tool", "pprof", *options, "-top", file],
            env=environment | {"PPROF_TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,  # go builds its tools when they are first used
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return top


def test_go_opens_it(hakmem, taken, tmp_path, go_top):
    file, out = tmp_path / "heap", tmp_path / "heap.pb.gz"
    file.write_text(text_of(taken))
    assert hakmem("profile", str(file), "--pprof", str(out)).returncode == 0
    space = go_top(out, "-unit=B")
    assert "File: program" in space and "Type: inuse_space" in space
    assert f"{taken.live_bytes}B total" in space
    assert re.search(rf"{3 << 20}B .* program\+0x103f", space)
    assert "40004 total" in go_top(out, "-sample_index=inuse_objects")


def test_go_opens_what_a_process_writes(tmp_path, go_top):
    file = tmp_path / "heap"
    with running(compiled(tmp_path, KNOWN, "-g"), "rest", file, HAKMEM_KEEPER="0", HAKMEM_INSIGHT="2"):
        taken = snapshots.read(str(file))
    space = go_top(tmp_path / "heap.pb", "-unit=B")
    assert "File: known" in space and f"Build ID: {taken.mappings[0].build_id}" in space
    assert f"{taken.live_bytes}B total" in space
    (held,) = re.findall(r" (\d+)B +\S+ +main$", space, re.MULTILINE)
    assert int(held) > taken.live_bytes * 0.9


def test_go_opens_what_an_armed_process_writes(armed, go_top):
    taken, file = armed
    space = go_top(file, "-unit=B", "-sample_index=alloc_space")
    counted = [sum(getattr(each, field) for each in taken.counted.values()) for field in ("objects", "bytes")]
    assert "Type: alloc_space" in space and f"{counted[1]}B total" in space
    assert re.search(r" main$", space, re.MULTILINE)
    assert f"{counted[0]} total" in go_top(file, "-sample_index=alloc_objects")
