"""Profiles in pprof's format, which `go tool pprof` reads and many programs write."""

from __future__ import annotations

import functools
import gzip
import io
import zlib
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from hakmem import entries, plausible
from hakmem.errors import Failure
from hakmem.estimates import Line, Stacks
from hakmem.plausible import Damaged
from hakmem.snapshots import Mapping, Snapshot
from hakmem.symbols import Frame, Symbols, addresses, clean

_PACKAGE = "perftools.profiles"
_GZIP = b"\x1f\x8b"
_UNPACKED_MOST = 1 << 30
_PIECE = 1 << 20

# The fields of each message: name, number, type, with [] if repeated. Texts are indexes into the table of strings.
_MESSAGES = {
    "ValueType": [("type", 1, "int64"), ("unit", 2, "int64")],
    "Label": [("key", 1, "int64"), ("str", 2, "int64"), ("num", 3, "int64"), ("num_unit", 4, "int64")],
    "Sample": [("location_id", 1, "uint64[]"), ("value", 2, "int64[]"), ("label", 3, "Label[]")],
    "Mapping": [
        *[("id", 1, "uint64"), ("memory_start", 2, "uint64"), ("memory_limit", 3, "uint64"), ("file_offset", 4, "uint64")],
        *[("filename", 5, "int64"), ("build_id", 6, "int64"), ("has_functions", 7, "bool"), ("has_filenames", 8, "bool")],
        *[("has_line_numbers", 9, "bool"), ("has_inline_frames", 10, "bool")],
    ],
    "Line": [("function_id", 1, "uint64"), ("line", 2, "int64"), ("column", 3, "int64")],
    "Location": [
        *[("id", 1, "uint64"), ("mapping_id", 2, "uint64"), ("address", 3, "uint64"), ("line", 4, "Line[]")],
        ("is_folded", 5, "bool"),
    ],
    "Function": [
        *[("id", 1, "uint64"), ("name", 2, "int64"), ("system_name", 3, "int64"), ("filename", 4, "int64")],
        ("start_line", 5, "int64"),
    ],
    "Profile": [
        *[("sample_type", 1, "ValueType[]"), ("sample", 2, "Sample[]"), ("mapping", 3, "Mapping[]")],
        *[("location", 4, "Location[]"), ("function", 5, "Function[]"), ("string_table", 6, "string[]")],
        *[("drop_frames", 7, "int64"), ("keep_frames", 8, "int64"), ("time_nanos", 9, "int64")],
        *[("duration_nanos", 10, "int64"), ("period_type", 11, "ValueType"), ("period", 12, "int64")],
        *[("comment", 13, "int64[]"), ("default_sample_type", 14, "int64")],
    ],
}  # fmt: skip


@functools.cache
def _message(name: str) -> Any:
    """The class of a message, made from the table above."""
    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="hakmem_pprof.proto", package=_PACKAGE, syntax="proto3")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for field_name, number, kind in fields:
            plain = kind.removesuffix("[]")
            label = field_type.LABEL_OPTIONAL if plain == kind else field_type.LABEL_REPEATED
            added = message.field.add(name=field_name, number=number, label=label)
            if plain in _MESSAGES:
                added.type, added.type_name = field_type.TYPE_MESSAGE, f".{_PACKAGE}.{plain}"
            else:
                added.type = getattr(field_type, f"TYPE_{plain.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


class _Writer:
    def __init__(self, snapshot: Snapshot, symbols: Symbols) -> None:
        self.snapshot = snapshot
        self.symbols = symbols
        self.profile = _message("Profile")()
        self._strings = {"": 0}
        self._mappings: dict[Mapping, int] = {}
        self._locations: dict[int, int] = {}
        self._functions: dict[tuple[str, str], int] = {}

    def text(self, text: str) -> int:
        return self._strings.setdefault(clean(text), len(self._strings))

    def add_type(self, target: Any, kind: str, unit: str) -> None:
        target.type, target.unit = self.text(kind), self.text(unit)

    def mapping(self, mapping: Mapping) -> int:
        number = self._mappings.get(mapping)
        if number is None:
            number = self._mappings[mapping] = len(self._mappings) + 1
            module = self.symbols.module(mapping) if mapping.path.startswith("/") else None
            lines = module is not None and module.has_lines
            self.profile.mapping.add(
                id=number,
                memory_start=mapping.start,
                memory_limit=mapping.end,
                file_offset=mapping.offset,
                filename=self.text(mapping.path),
                build_id=self.text(mapping.build_id),
                has_functions=True,  # otherwise pprof would look for them in whatever file is at the path now
                has_filenames=lines,
                has_line_numbers=lines,
                has_inline_frames=lines,
            )
        return number

    def _function(self, frame: Frame) -> int:
        key = (frame.symbol or frame.name, frame.file)
        number = self._functions.get(key)
        if number is None:
            number = self._functions[key] = len(self._functions) + 1
            system_name = self.text(frame.symbol or frame.name)
            name, file = self.text(frame.name), self.text(frame.file)
            self.profile.function.add(id=number, name=name, system_name=system_name, filename=file)
        return number

    def location(self, frames: list[Frame]) -> int:
        """The location of one address."""
        last = frames[-1]
        number = self._locations.get(last.address)
        if number is None:
            number = self._locations[last.address] = len(self._locations) + 1
            mapping = self.mapping(last.mapping) if last.mapping else 0
            location = self.profile.location.add(id=number, mapping_id=mapping, address=last.address)
            for frame in frames:
                location.line.add(function_id=self._function(frame), line=frame.line)
        return number

    def named(self, name: str) -> int:
        """A location without an address, such as for what was not sampled."""
        number = self._locations.setdefault(-1 - self.text(name), len(self._locations) + 1)
        if number > len(self.profile.location):
            function = len(self._functions) + 1
            self._functions[(name, "")] = function
            self.profile.function.add(id=function, name=self.text(name), system_name=self.text(name))
            self.profile.location.add(id=number).line.add(function_id=function)
        return number

    def finish(self) -> Any:
        self.profile.string_table.extend(self._strings)
        return self.profile


def encode(snapshot: Snapshot, symbols: Symbols) -> bytes:
    """The snapshot's estimates, which sum to its live bytes."""
    writer = _Writer(snapshot, symbols)
    profile = writer.profile
    types = entries.types(snapshot)
    for kind, unit in types.items():
        writer.add_type(profile.sample_type.add(), kind, unit)
    writer.add_type(profile.period_type, "space", "bytes")
    profile.period = snapshot.rate
    profile.default_sample_type = writer.text(entries.SPACE)
    profile.time_nanos = snapshot.time * 10**9
    if snapshot.program_mapping:
        writer.mapping(snapshot.program_mapping)  # pprof takes the first mapping for the program
    for entry in entries.entries(snapshot, symbols):
        sample = profile.sample.add(value=[entry.values.get(kind, 0) for kind in types])
        sample.location_id.extend(
            [writer.location(each) for each in addresses(entry.frames)] or [writer.named(entry.name)]
        )
        for key, (value, unit) in entry.labels.items():
            if isinstance(value, str):
                sample.label.add(key=writer.text(key), str=writer.text(value))
            else:
                sample.label.add(key=writer.text(key), num=value, num_unit=writer.text(unit))
    return gzip.compress(writer.finish().SerializeToString(), mtime=0)


# ---- Reading ----


def _column(profile: Any, names: tuple[str, ...]) -> int | None:
    kinds = [profile.string_table[each.type] for each in profile.sample_type]
    return next((kinds.index(name) for name in names if name in kinds), None)


def _frames(profile: Any) -> dict[int, tuple[tuple[str, int | None, str], ...]]:
    strings = profile.string_table
    mappings = {each.id: each for each in profile.mapping}
    functions = {each.id: strings[each.name] for each in profile.function}
    found = {}
    for location in profile.location:
        mapping = mappings.get(location.mapping_id)
        module, offset = "", None
        if mapping is not None and location.address:
            module = strings[mapping.build_id]
            offset = location.address - mapping.memory_start + mapping.file_offset
        names = [functions.get(line.function_id, "") for line in location.line] or [""]
        found[location.id] = tuple((module, offset, name or f"0x{location.address:x}") for name in names)
    return found


def _error_of(held: int, objects: int, samples: int | None, rate: float) -> tuple[float, int]:
    """The variance of an entry, and how many samples it may have had, by its mean block if that is not given."""
    size = held / objects if objects else held
    chance = min(1.0, size / rate)
    count = samples if samples is not None else max(1, round(objects * chance))
    if chance == 1 or not held:
        return 0.0, 0
    return held * held * (1 - chance) / max(1, count), count


def _unpacked(data: bytes, name: str) -> bytes:
    """Unpacks the data up to a limit, since few bytes can unpack to any number."""
    found = bytearray()
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        while part := file.read(_PIECE):
            found += part
            plausible.must(len(found) <= _UNPACKED_MOST, name, f"the profile has more than {_UNPACKED_MOST} bytes")
    return bytes(found)


def decode(data: bytes, name: str) -> Stacks:
    """The live bytes in a pprof file by stack, with their errors as far as they are known."""
    try:
        profile = _message("Profile").FromString(_unpacked(data, name) if data.startswith(_GZIP) else data)
        space, count = _column(profile, ("inuse_space",)), _column(profile, ("inuse_objects",))
        samples = _column(profile, ("samples",))
        frames = _frames(profile)
        if any(len(sample.value) != len(profile.sample_type) for sample in profile.sample):
            raise IndexError
    except (DecodeError, OSError, EOFError, zlib.error, IndexError):
        raise Damaged(name, "neither a hakmem snapshot nor a pprof profile") from None
    if space is None or count is None:
        raise Failure(f"{name}: the profile has no inuse_space and inuse_objects")
    if profile.period <= 0:
        raise Failure(f"{name}: the profile does not say how many bytes a sample stands for (its period)")
    for sample in profile.sample:
        plausible.must(min(sample.value, default=0) >= 0, name, "the profile has negative values: is it itself a difference?")
    stacks = Stacks(name, profile.period)
    for sample in profile.sample:
        key = tuple(frame for each in sample.location_id for frame in frames.get(each, ()))
        line = stacks.lines.setdefault(key, Line(key))
        held, objects = sample.value[space], sample.value[count]
        variance, uncertain = _error_of(held, objects, None if samples is None else sample.value[samples], stacks.rate)
        line.bytes += held
        line.objects += objects
        line.samples += sample.value[samples] if samples is not None else uncertain
        line.uncertain += uncertain
        line.variance += variance
    return stacks


def read(path: str) -> Stacks:
    return decode(Path(path).read_bytes(), path)
