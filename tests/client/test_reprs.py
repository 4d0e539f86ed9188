"""What a debugger or a log shows of the client's objects: what they are, and never megabytes."""

import uuid

import pytest

from odradek.client import Admin, ConsumerRecord, PartitionDescription, TopicDescription
from odradek.client import blocking as plain

BOUND = 2_000


def record(value: bytes | None, *headers: tuple[str, bytes | None]) -> ConsumerRecord:
    return ConsumerRecord("flights", 3, 42, 1_700_000_000_000, 0, b"LH400", value, headers)


def test_a_record_says_where_it_is_and_what_it_has() -> None:
    assert repr(record(b"late", ("why", b"fog"), ("by", None))) == (
        "<ConsumerRecord flights-3@42: key b'LH400', value b'late', why=b'fog', by=None>"
    )


@pytest.mark.parametrize(
    "large",
    [
        record(b"x" * 10_000_000),
        record(None, *[("h", b"x" * 100_000)] * 1_000),
        [record(b"x" * 10_000_000)] * 3,
        TopicDescription(
            "flights",
            uuid.uuid4(),
            False,
            (PartitionDescription(0, 1, 0, (1,), (1,)),) * 10_000,
        ),
    ],
    ids=["value", "headers", "several", "partitions"],
)
def test_what_is_large_is_shown_in_part(large: object) -> None:
    assert len(repr(large)) < BOUND


def test_clients_say_what_they_are_before_they_are_used() -> None:
    assert repr(Admin("127.0.0.1:9092")) == "<Admin of 127.0.0.1:9092>"
    assert repr(Admin(["a:1", "b:2"])) == "<Admin of a:1,b:2>"
    for kind in (plain.Admin, plain.Consumer, plain.Producer):
        assert repr(kind("127.0.0.1:9092")).startswith(f"<{kind.__name__}, not used yet")
