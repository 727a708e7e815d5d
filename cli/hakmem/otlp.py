"""Profiles in OpenTelemetry's protocol (signal v1development), which its collectors accept and write to files.

A profile there has one type of value, so a snapshot becomes several. They share one dictionary; each of its tables begins with an empty
element, so that index 0 means "none".
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.profiles.v1development import profiles_pb2 as format_of

import hakmem
from hakmem import entries
from hakmem.entries import Entry
from hakmem.snapshots import Mapping, Snapshot
from hakmem.symbols import Frame, Symbols, addresses, clean

# Names from the semantic conventions; the others are ours.
_BUILD_ID = "process.executable.build_id.gnu"
_FRAME_TYPE, _NATIVE = "profile.frame.type", "native"
_LABELS = {"bytes": "allocation_size", "age": "hakmem.age", "tag": "hakmem.tag"}


class _Table:
    """A table of the dictionary, with each element once."""

    def __init__(self, elements: Any, empty: Message) -> None:
        self._elements = elements
        self._numbers: dict[bytes, int] = {}
        self.index(empty)

    def index(self, element: Message) -> int:
        key = element.SerializeToString(deterministic=True)
        number = self._numbers.setdefault(key, len(self._numbers))
        if number == len(self._elements):
            self._elements.append(element)
        return number


def _value(value: int | str) -> AnyValue:
    return AnyValue(string_value=clean(value)) if isinstance(value, str) else AnyValue(int_value=value)


class _Dictionary:
    def __init__(self, of: format_of.ProfilesDictionary) -> None:
        self._of = of
        self._strings: dict[str, int] = {}
        self._locations: dict[tuple[Frame, ...], int] = {}
        self.text("")
        self._mapping_table = _Table(of.mapping_table, format_of.Mapping())
        self._location_table = _Table(of.location_table, format_of.Location())
        self._function_table = _Table(of.function_table, format_of.Function())
        self._attribute_table = _Table(of.attribute_table, format_of.KeyValueAndUnit())
        self._stack_table = _Table(of.stack_table, format_of.Stack())
        _Table(of.link_table, format_of.Link())

    def text(self, text: str) -> int:
        known = clean(text)
        number = self._strings.setdefault(known, len(self._strings))
        if number == len(self._of.string_table):
            self._of.string_table.append(known)
        return number

    def type(self, kind: str, unit: str) -> format_of.ValueType:
        return format_of.ValueType(type_strindex=self.text(kind), unit_strindex=self.text(unit))

    def attribute(self, key: str, value: int | str, unit: str = "") -> int:
        element = format_of.KeyValueAndUnit(
            key_strindex=self.text(key), value=_value(value), unit_strindex=self.text(unit)
        )
        return self._attribute_table.index(element)

    def _mapping(self, mapping: Mapping) -> int:
        element = format_of.Mapping(
            memory_start=mapping.start,
            memory_limit=mapping.end,
            file_offset=mapping.offset,
            filename_strindex=self.text(mapping.path),
            attribute_indices=[self.attribute(_BUILD_ID, mapping.build_id)] if mapping.build_id else [],
        )
        return self._mapping_table.index(element)

    def _function(self, name: str, symbol: str, file: str) -> int:
        element = format_of.Function(
            name_strindex=self.text(name), system_name_strindex=self.text(symbol), filename_strindex=self.text(file)
        )
        return self._function_table.index(element)

    def _new_location(self, frames: tuple[Frame, ...]) -> int:
        """Has no function if none is known: the viewer may have better symbols."""
        frame = frames[-1]
        element = format_of.Location(address=frame.address)
        if frame.mapping is not None:
            element.mapping_index = self._mapping(frame.mapping)
            if frame.mapping.path:  # otherwise it was made at run time, by an unknown runtime
                element.attribute_indices.append(self.attribute(_FRAME_TYPE, _NATIVE))
        for each in frames:
            if each.function:
                element.lines.add(function_index=self._function(each.name, each.symbol, each.file), line=each.line)
        return self._location_table.index(element)

    def _location(self, frames: tuple[Frame, ...]) -> int:
        """The location of one address."""
        number = self._locations.get(frames)
        if number is None:
            number = self._locations[frames] = self._new_location(frames)
        return number

    def _named(self, name: str) -> int:
        """A location without an address, such as for what was not sampled."""
        element = format_of.Location(lines=[format_of.Line(function_index=self._function(name, name, ""))])
        return self._location_table.index(element)

    def stack(self, entry: Entry) -> int:
        locations = [self._location(tuple(each)) for each in addresses(entry.frames)] or [self._named(entry.name)]
        return self._stack_table.index(format_of.Stack(location_indices=locations))


def _resource(snapshot: Snapshot) -> list[KeyValue]:
    attributes: dict[str, int | str] = {"process.pid": snapshot.process}
    if program := snapshot.program_mapping:
        attributes |= {"process.executable.name": program.name, "process.executable.path": program.path}
    return [KeyValue(key=key, value=_value(value)) for key, value in attributes.items()]


def data_of(snapshot: Snapshot, symbols: Symbols) -> format_of.ProfilesData:
    """The snapshot's estimates. Live bytes come first, since viewers show the first profile by default."""
    data = format_of.ProfilesData()
    dictionary = _Dictionary(data.dictionary)
    of_resource = data.resource_profiles.add()
    of_resource.resource.attributes.extend(_resource(snapshot))
    scope = of_resource.scope_profiles.add()
    scope.scope.name, scope.scope.version = "hakmem", hakmem.__version__
    # Entries with the same stack and attributes form one sample.
    sums: dict[str, dict[tuple, int]] = {kind: {} for kind in entries.types(snapshot)}
    for entry in entries.entries(snapshot, symbols):
        attributes = [dictionary.attribute(_LABELS[key], *value) for key, value in entry.labels.items()]
        identity = dictionary.stack(entry), tuple(attributes)
        for kind, value in entry.values.items():
            if value:
                sums[kind][identity] = sums[kind].get(identity, 0) + value
    for kind, unit in sorted(entries.types(snapshot).items(), key=lambda each: each[0] != entries.SPACE):
        profile = scope.profiles.add(
            sample_type=dictionary.type(kind, unit),
            time_unix_nano=snapshot.time * 10**9,
            period_type=dictionary.type("space", "bytes"),
            period=snapshot.rate,
        )
        for (stack, attributes), value in sums[kind].items():
            profile.samples.add(stack_index=stack, attribute_indices=attributes, values=[value])
    return data


def encode(snapshot: Snapshot, symbols: Symbols) -> bytes:
    """The bytes of the message, which are also those of a request to a collector."""
    return data_of(snapshot, symbols).SerializeToString()
