"""Durations and sizes as people write them."""

import pytest

from odradek.protocol.quantities import as_number, seconds


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("retention.ms", "1d", "86400000"),
        ("retention.ms", "1.5h", "5400000"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "604800000", "604800000"),
        ("log.retention.hours", "7d", "168"),
        ("offsets.retention.minutes", "1w", "10080"),
        ("segment.bytes", "512MiB", "536870912"),
        ("segment.bytes", "1 GB", "1000000000"),
        ("max.message.bytes", "1KiB", "1024"),
        ("log.cleaner.dedupe.buffer.size", "128MiB", "134217728"),
        ("cleanup.policy", "1d", "1d"),
        ("group.consumer.max.size", "512MiB", "512MiB"),
        ("broker.rack", "2b", "2b"),
    ],
)
def test_a_quantity_is_the_number_that_a_broker_takes(name: str, text: str, expected: str) -> None:
    assert as_number(name, text) == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("retention.ms", "1y", "'1y' is no duration: the units are ms, s, m, min, h, d, w"),
        ("segment.bytes", "1MB2", ""),
        ("segment.bytes", "512mib", "'512mib' is no size: the units are B, KiB"),
        ("log.retention.hours", "90m", "log.retention.hours is a whole number: 90m would be 1.5"),
    ],
)
def test_a_unit_that_does_not_exist_is_named(name: str, text: str, expected: str) -> None:
    if not expected:  # no quantity at all: the broker says what is wrong
        assert as_number(name, text) == text
        return
    with pytest.raises(ValueError, match=expected):
        as_number(name, text)


def test_seconds_may_have_a_unit() -> None:
    assert (seconds("5m"), seconds("1.5h"), seconds("250ms")) == (300, 5400, 0.25)
    assert seconds("5") is None
