"""hakmem profile --otlp: what OpenTelemetry's own library reads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from heap import CODE, Heap, mixed, of_code, pin, text_of
from processes import compiled, running

import hakmem as package
from hakmem.symbols import Symbols

pytest.importorskip("opentelemetry.proto.profiles.v1development", reason="opentelemetry-proto 1.43 needs Python 3.10")

from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest  # noqa: E402
from opentelemetry.proto.profiles.v1development.profiles_pb2 import Line, Profile, ProfilesData, Sample  # noqa: E402

from hakmem import otlp  # noqa: E402

SMALL = Heap({64: mixed({2: 30_000, 3: 10_000}, free=500), 48: mixed({2: 3})}, [(4, 3 << 20), (4, 3 << 20)])
LIVE = {"inuse_space": "bytes", "inuse_objects": "count", "samples": "count"}
PINNED = {"pinned_sole": "bytes", "pinned_shared": "bytes"}


@pytest.fixture
def taken():
    found = SMALL.sampled(1)
    found.mappings = [of_code("/opt/program", "ab" * 20, offset=0x1000)]
    return found


def checked(content: bytes) -> ProfilesData:
    """The message, after a look at all of its indexes: each leads to an element, and each element is there once and led to."""
    data = ProfilesData.FromString(content)
    tables = data.dictionary
    sizes = {name: len(getattr(tables, name)) for name in (field.name for field in tables.DESCRIPTOR.fields)}
    used: dict[str, set[int]] = {name: {0} for name in sizes}

    def see(table: str, *indexes: int) -> None:
        for index in indexes:
            assert 0 <= index < sizes[table], table
            used[table].add(index)

    def walk(message) -> None:
        """Every field of a name like mapping_index is one into that table, wherever it stands."""
        for field, value in message.ListFields():
            stem, _, kind = field.name.rpartition("_")
            values = list(value) if field.is_repeated else [value]
            if kind == "strindex":
                see("string_table", *values)
            elif kind in ("index", "indices"):
                see(f"{stem}_table", *values)
            elif field.message_type is not None:
                for each in values:
                    walk(each)

    walk(data)
    assert used == {name: set(range(size)) for name, size in sizes.items()}
    for name, field in tables.DESCRIPTOR.fields_by_name.items():
        elements = list(getattr(tables, name))
        assert elements[0] == ("" if field.message_type is None else type(elements[0])())
        texts = [each if isinstance(each, str) else each.SerializeToString(deterministic=True) for each in elements]
        assert len(set(texts)) == len(texts)
    return data


def profiles_of(data: ProfilesData) -> dict[str, Profile]:
    (of_resource,) = data.resource_profiles
    (scope,) = of_resource.scope_profiles
    return {data.dictionary.string_table[profile.sample_type.type_strindex]: profile for profile in scope.profiles}


def total(profile: Profile) -> int:
    assert all(len(sample.values) == 1 for sample in profile.samples)
    identities = [(sample.stack_index, tuple(sorted(sample.attribute_indices))) for sample in profile.samples]
    assert len(set(identities)) == len(identities)
    return sum(sample.values[0] for sample in profile.samples)


def attributes(data: ProfilesData, of) -> dict[str, object]:
    text = data.dictionary.string_table
    found = [data.dictionary.attribute_table[index] for index in of.attribute_indices]
    return {
        text[each.key_strindex]: (getattr(each.value, each.value.WhichOneof("value")), text[each.unit_strindex])
        for each in found
    }


def frames(data: ProfilesData, sample: Sample) -> list:
    stack = data.dictionary.stack_table[sample.stack_index]
    return [data.dictionary.location_table[index] for index in stack.location_indices]


def names(data: ProfilesData, sample: Sample) -> list[str]:
    def name(line: Line) -> str:
        return data.dictionary.string_table[data.dictionary.function_table[line.function_index].name_strindex]

    return [name(location.lines[0]) if location.lines else "" for location in frames(data, sample)]


@pytest.mark.parametrize("with_pinned", [False, True])
def test_each_type_is_a_profile_that_sums(taken, with_pinned):
    if with_pinned:
        pin(taken, SMALL, every=2)
    data = checked(otlp.encode(taken, Symbols(taken)))
    profiles = profiles_of(data)
    text = data.dictionary.string_table
    assert next(iter(profiles)) == "inuse_space"  # shown by default
    units = {kind: text[profile.sample_type.unit_strindex] for kind, profile in profiles.items()}
    assert units == LIVE | (PINNED if with_pinned else {})
    assert total(profiles["inuse_space"]) == taken.live_bytes
    assert total(profiles["inuse_objects"]) == 40_000 + 3 + 2
    assert total(profiles["samples"]) == len(taken.samples)
    if with_pinned:
        assert total(profiles["pinned_shared"]) == sum(stratum.waste for stratum in taken.strata)
        assert 0 < total(profiles["pinned_sole"]) < total(profiles["pinned_shared"])
    for profile in profiles.values():
        assert (profile.time_unix_nano, profile.period) == (taken.time * 10**9, taken.rate)
        assert text[profile.period_type.type_strindex] == "space"


def test_stacks_mappings_and_attributes(taken):
    data = checked(otlp.encode(taken, Symbols(taken)))
    text = data.dictionary.string_table
    _, mapping = data.dictionary.mapping_table
    assert (mapping.memory_start, mapping.memory_limit, mapping.file_offset) == (CODE, CODE + (1 << 20), 0x1000)
    assert text[mapping.filename_strindex] == "/opt/program"
    assert attributes(data, mapping) == {"process.executable.build_id.gnu": ("ab" * 20, "")}
    samples = profiles_of(data)["inuse_space"].samples
    # Both large blocks of site 4 are one sample.
    of_site_4 = next(sample for sample in samples if sample.values == [6 << 20])
    assert attributes(data, of_site_4) == {
        "allocation_size": (3 << 20, "bytes"),
        "hakmem.age": (1, "seconds"),
        "hakmem.tag": (1, ""),
    }
    locations = frames(data, of_site_4)
    assert [location.address for location in locations] == [CODE + 16 * 4 - 1, CODE + 16 - 1]
    assert all(data.dictionary.mapping_table[each.mapping_index] == mapping for each in locations)
    assert attributes(data, locations[0]) == {"profile.frame.type": ("native", "")}
    assert names(data, of_site_4) == ["", ""]  # nothing is known of that program
    assert ["(not sampled)"] in [names(data, sample) for sample in samples]


def test_a_named_heap_is_named(taken):
    taken.heap_names = {1: "cache"}
    data = checked(otlp.encode(taken, Symbols(taken)))
    tags = [attributes(data, sample).get("hakmem.tag") for sample in profiles_of(data)["inuse_space"].samples]
    assert set(tags) == {None, (2, ""), ("heap cache", "")}  # no heap has the other one


def test_code_made_at_run_time_has_no_type(taken):
    taken.mappings = [of_code("")]
    data = checked(otlp.encode(taken, Symbols(taken)))
    places = [location for location in data.dictionary.location_table if location.address]
    assert places and all(each.mapping_index == 1 and not each.attribute_indices for each in places)


def test_sites_without_a_stack_are_one_sample(taken):
    taken.sites = {}
    taken.samples = [replace(each, tag=0) for each in taken.samples]
    data = checked(otlp.encode(taken, Symbols(taken)))
    profile = profiles_of(data)["inuse_space"]
    assert total(profile) == taken.live_bytes  # which sees that no two samples are the same
    assert {name for sample in profile.samples for name in names(data, sample)} == {"(unknown)", "(not sampled)"}


def test_who_says_it_of_whom(taken):
    data = checked(otlp.encode(taken, Symbols(taken)))
    (of_resource,) = data.resource_profiles
    said = {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in of_resource.resource.attributes}
    assert said == {
        "process.pid": 77,
        "process.executable.name": "program",
        "process.executable.path": "/opt/program",
    }
    scope = of_resource.scope_profiles[0].scope
    assert (scope.name, scope.version) == ("hakmem", package.__version__)


def test_a_collector_takes_the_same_bytes(taken):
    content = otlp.encode(taken, Symbols(taken))
    assert ExportProfilesServiceRequest.FromString(content).dictionary == ProfilesData.FromString(content).dictionary


def test_the_format_is_the_one_that_is_told():
    """Its numbers change between releases: docs/insight.md and pyproject.toml tell which one is written."""
    numbers = {field.name: field.number for field in Sample.DESCRIPTOR.fields}
    assert numbers == {
        "stack_index": 1,
        "attribute_indices": 2,
        "link_index": 3,
        "values": 4,
        "timestamps_unix_nano": 5,
    }


def test_names_that_are_no_unicode_are_written(taken):
    taken.mappings = [of_code("/opt/pro\udcffgram", "ab" * 20)]
    assert "/opt/pro�gram" in checked(otlp.encode(taken, Symbols(taken))).dictionary.string_table


def test_a_process_leads_to_the_function_that_allocated(hakmem, tmp_path):
    out, file = tmp_path / "out", tmp_path / "heap"
    with running(compiled(tmp_path), "rest", file, HAKMEM_KEEPER="0") as process:
        done = hakmem("profile", str(process.pid), "--otlp", str(out))
        assert (done.returncode, done.stdout) == (0, "")
    data = checked(out.read_bytes())
    samples = profiles_of(data)["inuse_space"].samples
    known = [sample for sample in samples if any(location.address for location in frames(data, sample))]
    assert sum(sample.values[0] for sample in known) > 0.9 * sum(sample.values[0] for sample in samples)
    # rest() is all that allocates; the compiler may put it into main.
    assert all({"rest", "main"} & set(names(data, sample)) for sample in known)


def test_a_snapshot_becomes_the_same_file(hakmem, taken, tmp_path):
    file, out = tmp_path / "heap", tmp_path / "out"
    file.write_text(text_of(taken))
    assert hakmem("profile", str(file), "--otlp", str(out), "--json").returncode == 0
    assert total(profiles_of(checked(out.read_bytes()))["inuse_space"]) == taken.live_bytes
