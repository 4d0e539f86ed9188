"""The headers of a record that is sent on: where it came from, and why."""

import struct
from typing import Any

import pytest

from odradek.client import ConsumerRecord, Origin, PoisonRecord, Refused, origin_of
from odradek.client.producing.forwarding import STACKTRACE_MAX, forwarded_headers
from odradek.client.types import Header

RECORD = ConsumerRecord("orders", 3, 41, 1_700_000_000_000, 0, b"k", b"v", (("trace", b"7"),))


def failure() -> ValueError:
    try:
        try:
            raise KeyError("sku")
        except KeyError as cause:
            raise ValueError("no such item") from cause
    except ValueError as error:
        return error


def again(headers: list[Header], **changes: Any) -> ConsumerRecord:
    """The forwarded record, as a consumer of the other topic gets it."""
    place = {"topic": "orders-retry", "partition": 0, "offset": 0, **changes}
    return RECORD._replace(headers=tuple(headers), **place)


def test_the_headers_have_the_names_and_bytes_that_spring_kafka_gives_them() -> None:
    headers = forwarded_headers(RECORD, failure(), "spring")
    assert headers[:-1] == [
        ("trace", b"7"),
        ("kafka_dlt-original-topic", b"orders"),
        ("kafka_dlt-original-partition", b"\0\0\0\3"),
        ("kafka_dlt-original-offset", b"\0\0\0\0\0\0\0\x29"),
        ("kafka_dlt-original-timestamp", struct.pack(">q", 1_700_000_000_000)),
        ("kafka_dlt-original-timestamp-type", b"CreateTime"),
        ("kafka_dlt-exception-fqcn", b"ValueError"),
        ("kafka_dlt-exception-cause-fqcn", b"KeyError"),
        ("kafka_dlt-exception-message", b"no such item"),
    ]
    name, trace = headers[-1]
    assert name == "kafka_dlt-exception-stacktrace"
    assert trace is not None
    assert trace.endswith(b"ValueError: no such item\n")
    assert b"KeyError: 'sku'" in trace


def test_the_headers_have_the_names_and_text_that_kafka_connect_gives_them() -> None:
    headers = forwarded_headers(RECORD, failure(), "connect")
    assert headers[:-1] == [
        ("trace", b"7"),
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.partition", b"3"),
        ("__connect.errors.offset", b"41"),
        ("__connect.errors.exception.class.name", b"ValueError"),
        ("__connect.errors.exception.message", b"no such item"),
    ]
    assert headers[-1][0] == "__connect.errors.exception.stacktrace"


@pytest.mark.parametrize("names", ["spring", "connect"])
def test_the_origin_is_read_back_and_stays_that_of_the_first_topic(names: Any) -> None:
    """A dead letter said that it came from the last retry topic, where nobody can replay it."""
    timestamp = RECORD.timestamp_ms if names == "spring" else None
    once = again(forwarded_headers(RECORD, failure(), names))
    first = Origin("orders", 3, 41, timestamp, "ValueError", "no such item")
    assert origin_of(once) == first
    twice = again(forwarded_headers(once, TimeoutError("too late"), names))
    assert origin_of(twice) == first._replace(exception="TimeoutError", message="too late")
    assert len(twice.headers) == len({name for name, _ in twice.headers}), "the cause is gone, too"
    back = again(forwarded_headers(twice, None, names))
    assert origin_of(back) == origin_of(twice)


def test_a_record_that_was_not_forwarded_has_no_origin() -> None:
    assert origin_of(RECORD) is None


def test_added_headers_replace_those_of_their_name() -> None:
    once = again(forwarded_headers(RECORD, None, "spring", [("attempts", b"1"), ("trace", b"8")]))
    twice = forwarded_headers(once, None, "spring", [("attempts", b"2")])
    assert [value for name, value in twice if name == "attempts"] == [b"2"]
    assert [value for name, value in twice if name == "trace"] == [b"8"]


def test_a_key_that_cannot_be_read_has_the_headers_of_a_key() -> None:
    error = PoisonRecord(RECORD, "key", ValueError("k"))
    headers = dict(forwarded_headers(error.record, error, "spring"))
    name = b"odradek.client.serialization.PoisonRecord"
    assert headers["kafka_dlt-key-exception-fqcn"] == name
    assert "kafka_dlt-exception-fqcn" not in headers
    found = origin_of(again(list(headers.items())))
    assert found is not None
    assert found.message == str(error)


def test_a_long_trace_keeps_its_end_and_odd_text_is_no_error() -> None:
    error = ValueError("x" * 2 * STACKTRACE_MAX + "\udcff end")
    headers = dict(forwarded_headers(RECORD, error, "spring"))
    trace = headers["kafka_dlt-exception-stacktrace"]
    assert trace is not None
    assert trace.endswith(b"\\udcff end\n")
    assert len(trace) < STACKTRACE_MAX + 10


@pytest.mark.parametrize("names", ["spring", "connect"])
def test_the_reason_does_not_repeat_a_large_value(names: Any) -> None:
    """A codec's error has all bytes: the dead letter was too large for the broker."""
    value = b"\xff" * 1_000_000
    with pytest.raises(UnicodeDecodeError) as raised:
        value.decode()
    error = PoisonRecord(RECORD._replace(value=value), "value", raised.value)
    assert "UnicodeDecodeError('utf-8', b'" in str(error)
    assert "invalid start byte')" in str(error)
    for given in (error, ValueError("x" * 1_000_000)):
        headers = forwarded_headers(RECORD, given, names)
        assert sum(len(value or b"") for _, value in headers) < 20_000


def test_headers_of_another_program_are_refused_with_their_place() -> None:
    strange = RECORD._replace(headers=(("kafka_dlt-original-topic", b"t"),))
    with pytest.raises(Refused, match="orders-3 at offset 41 do not say where it came from"):
        origin_of(strange)
    with pytest.raises(ValueError, match="'spring', 'connect', and 'java' was given"):
        forwarded_headers(RECORD, None, "java")  # type: ignore[arg-type]
