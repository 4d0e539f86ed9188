"""Every message is read as it was written, and everything else is refused.

For every API, version and direction: values of all kinds with nulls and tags, fields of a newer
peer, messages truncated at every byte, and random changes.
"""

import contextlib
import dataclasses
import tracemalloc
from functools import cache
from typing import Any, Final

import pytest

from odradek.protocol import wire
from odradek.protocol.api import Api
from odradek.protocol.apis.fetch import FETCH
from odradek.protocol.apis.metadata import METADATA, MetadataRequest
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.errors import ProtocolError
from odradek.protocol.schema import FieldType, blob
from tests.drawing import given, settings, st
from tests.protocol.messages import CASES, every_message, message_class, messages, quick
from tests.protocol.plain import message_construct, values_of

FUTURE_TAG: Final = 9_999


def build(api: Api[Any, Any], version: int, message: Any) -> bytes:
    return b"".join(wire.build(message, version, api.is_flexible(version)).finish())


def parse(api: Api[Any, Any], version: int, cls: type[Any], data: bytes) -> Any:
    return wire.parse(cls, version, api.is_flexible(version), data)


@every_message
def test_what_is_written_is_read_back(api: Api[Any, Any], version: int, side: str) -> None:
    cls = message_class(api, side)

    @given(message=messages(cls, version))
    @quick
    def check(message: Any) -> None:
        data = build(api, version, message)
        assert parse(api, version, cls, data) == message
        assert parse(api, version, cls, data + b"behind the body") == message

    check()


@every_message
def test_what_is_written_is_what_plain_constructs_read_and_write(
    api: Api[Any, Any], version: int, side: str
) -> None:
    cls, flexible = message_class(api, side), api.is_flexible(version)
    construct = message_construct(cls, version, flexible)

    @given(message=messages(cls, version))
    @settings(quick, max_examples=6)
    def check(message: Any) -> None:
        data = build(api, version, message)
        values = values_of(message, version, flexible)
        assert construct.build(values) == data
        assert without_notes(construct.parse(data)) == values

    check()


def without_notes(found: Any) -> Any:
    """What construct has read, without the places of streams that it notes."""
    if isinstance(found, dict):
        return {name: without_notes(value) for name, value in found.items() if name != "_io"}
    return [without_notes(item) for item in found] if isinstance(found, list) else found


@cache
def newer(cls: Any) -> Any:
    """Return `cls` as a newer peer declares it: each struct has one more tagged field."""
    declared: list[Any] = []
    for field in dataclasses.fields(cls):
        kind: FieldType = field.metadata["type"]
        item: Any = kind.item
        if isinstance(item, type):
            kind = dataclasses.replace(kind, item=newer(item))
        options: dict[str, Any] = {"metadata": {"type": kind}}
        if field.default is not dataclasses.MISSING:
            options["default"] = field.default
        declared.append((field.name, Any, dataclasses.field(**options)))
    declared.append(("from_the_future", bytes, blob(default=b"", tag=FUTURE_TAG)))
    return dataclasses.make_dataclass(
        f"Newer{cls.__name__}", declared, frozen=True, slots=True, kw_only=True
    )


def same_values(message: Any, parsed: Any) -> bool:
    """Return True if two messages agree in their common fields."""
    if dataclasses.is_dataclass(message):
        known = {field.name for field in dataclasses.fields(parsed)}
        return all(same_values(getattr(message, name), getattr(parsed, name)) for name in known)
    if isinstance(message, tuple) and isinstance(parsed, tuple):
        return len(message) == len(parsed) and all(map(same_values, message, parsed))
    return bool(message == parsed)


@pytest.mark.parametrize(
    ("api", "version", "side"),
    [case for case in CASES if case[0].is_flexible(case[1])],
    ids=[f"{api.name}-{v}-{side}" for api, v, side in CASES if api.is_flexible(v)],
)
def test_tagged_fields_of_a_newer_peer_are_skipped(
    api: Api[Any, Any], version: int, side: str
) -> None:
    cls = message_class(api, side)
    newer_cls: Any = newer(cls)

    @given(message=messages(newer_cls, version))
    @quick
    def check(message: Any) -> None:
        parsed = parse(api, version, cls, build(api, version, message))
        assert type(parsed) is cls
        assert same_values(message, parsed)

    check()


@every_message
def test_a_message_cut_off_anywhere_is_refused(api: Api[Any, Any], version: int, side: str) -> None:
    cls = message_class(api, side)

    @given(message=messages(cls, version))
    @settings(quick, max_examples=4)
    def check(message: Any) -> None:
        data = build(api, version, message)
        ends = range(len(data)) if len(data) < 600 else [*range(300), *range(300, len(data), 97)]
        for end in ends:
            with pytest.raises(ProtocolError):
                parse(api, version, cls, data[:end])

    check()


@every_message
def test_changed_bytes_are_read_or_refused_and_nothing_else(
    api: Api[Any, Any], version: int, side: str
) -> None:
    cls = message_class(api, side)

    @given(
        message=messages(cls, version),
        position=st.integers(0, 2**16),
        change=st.binary(min_size=1, max_size=5) | st.just(b"\xff\xff\xff\xff\x0f"),
    )
    @quick
    def check(message: Any, position: int, change: bytes) -> None:
        data = bytearray(build(api, version, message))
        start = position % (len(data) + 1)
        data[start : start + len(change)] = change
        with contextlib.suppress(ProtocolError):  # and no other exception
            parse(api, version, cls, bytes(data))

    check()


HUGE_COUNTS: Final = {
    "int32 max": (b"\x7f\xff\xff\xff", 8),
    "minus two": (b"\xff\xff\xff\xfe", 8),
    "one more than there is": (b"\x00\x00\x00\x02", 8),
    "compact max": (b"\xff\xff\xff\xff\x0f", 9),
    "compact max int32": (b"\xff\xff\xff\xff\x07", 9),
    "compact in six bytes": (b"\xff\xff\xff\xff\xff\x01", 9),
}


@pytest.mark.parametrize(("count", "version"), HUGE_COUNTS.values(), ids=HUGE_COUNTS.keys())
def test_an_absurd_count_is_refused_without_allocating_for_it(count: bytes, version: int) -> None:
    data = count + bytes(3)
    parse(METADATA, version, MetadataRequest, bytes(8))  # the first message compiles the function
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            parse(METADATA, version, MetadataRequest, data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 64 * 1024


def test_a_count_is_bounded_by_the_size_of_an_item() -> None:
    """A partition of FetchResponse has at least 40 bytes: 100 KiB cannot have 100,000 of them."""
    head = bytes(4 + 2 + 4) + b"\0\0\0\1" + b"\0\1t"  # throttle, error, session, one topic "t"
    data = head + (100_000).to_bytes(4, "big") + bytes(100 * 1024)
    with pytest.raises(ProtocolError, match="100000 items"):
        parse(FETCH, 11, FETCH.response, data)


@pytest.mark.parametrize(
    ("tags", "why"),
    [
        (b"\x02\x05\x00\x05\x00", "tag 5 comes after tag 5"),
        (b"\x02\x05\x00\x04\x00", "tag 4 comes after tag 5"),
        (b"\x01\x05\x81\x80\x80\x08" + bytes(2**24 + 1), "tagged field 5 has 16777217 bytes"),
        (b"\xff\xff\xff\xff\x0f", "ends"),
        (b"\x01\x05\x09", "9 bytes are announced"),
        (b"\x80\x80\x80\x80\x80\x00", "more than 5 bytes"),
    ],
)
def test_tags_that_make_no_sense_are_refused(tags: bytes, why: str) -> None:
    all_topics, two_flags = b"\x00", b"\x01\x00"
    with pytest.raises(ProtocolError, match=why):
        parse(METADATA, 12, MetadataRequest, all_topics + two_flags + tags)


def test_a_tagged_field_of_exactly_the_limit_is_taken() -> None:
    size = b"\x80\x80\x80\x08"  # 2^24
    data = b"\x00\x01\x00" + b"\x01\x05" + size + bytes(2**24)
    assert parse(METADATA, 12, MetadataRequest, data).topics is None


def test_null_where_null_is_not_allowed_is_refused() -> None:
    with pytest.raises(ProtocolError):
        parse(METADATA, 0, MetadataRequest, b"\xff\xff\xff\xff")
    assert parse(METADATA, 1, MetadataRequest, b"\xff\xff\xff\xff").topics is None


def test_a_string_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        parse(METADATA, 1, MetadataRequest, b"\0\0\0\1\0\2\xc3\x28")


def test_null_cannot_be_written_where_it_is_not_allowed() -> None:
    with pytest.raises(TypeError):
        build(METADATA, 0, MetadataRequest(topics=None))


def produce(records: bytes | bytearray) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="topic", partition_data=(partition,))
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=(topic,))


def test_large_records_are_sent_from_where_they_are_and_read_where_they_lie() -> None:
    records = bytearray(100_000)
    buffers = PRODUCE.build_request(9, produce(records)).finish()
    assert any(buffer is records for buffer in buffers)
    frame = bytearray(b"".join(buffers))
    parsed = PRODUCE.parse_request(9, frame).topic_data[0].partition_data[0].records
    assert isinstance(parsed, memoryview)
    assert parsed.obj is frame
    parsed[0] = 7
    assert 7 in frame
