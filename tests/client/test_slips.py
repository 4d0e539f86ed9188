"""Slips that cost an hour: each is refused where it is made, with what was given."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from odradek import client
from odradek.client import (
    Admin,
    Consumer,
    OffsetAndMetadata,
    Producer,
    Refused,
    TopicPartition,
    TransactionGroup,
    TransactionPool,
    aio,
    blocking,
)
from odradek.client.cluster.offsets import with_metadata
from odradek.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from odradek.client.options import check_kinds
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import ADDRESS, FakeBroker

CLIENTS = (client, aio, blocking)
CLASSES: dict[str, Callable[..., Any]] = {
    f"{package.__name__}.{name}": getattr(package, name)
    for package in CLIENTS
    for name in ("Admin", "Consumer", "Producer")
}


# Options


@pytest.mark.parametrize("make", CLASSES.values(), ids=CLASSES)
def test_a_wrong_value_is_named_together_with_its_option(make: Callable[..., Any]) -> None:
    """It was "'<' not supported between instances of 'str' and 'int'"."""
    with pytest.raises(ValueError, match=r"^request_timeout_ms is a whole number of milliseconds"):
        make(ADDRESS, request_timeout_ms="5")
    with pytest.raises(ValueError, match="and '5' was given"):
        make(ADDRESS, request_timeout_ms="5")


@pytest.mark.parametrize("kind", [ClientConfig, ProducerConfig, ConsumerConfig])
def test_every_option_with_a_plain_value_refuses_one_of_another_kind(
    kind: type[ClientConfig],
) -> None:
    for field in fields(kind):
        if field.name == "rng":
            continue
        with pytest.raises(ValueError, match=rf"^{field.name}\b.*(object|type) object"):
            kind(**{field.name: object()})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"linger_ms": "5"}, "linger_ms is a number of milliseconds, and '5' was given"),
        ({"batch_bytes": 1.5e5}, "batch_bytes is a whole number of bytes, and 150000.0 was given"),
        ({"linger_ms": True}, "linger_ms is a number of milliseconds, and True was given"),
        ({"linger_ms": float("nan")}, "linger_ms is at least 0, and nan was given"),
        ({"transactional_id": b"x"}, "transactional_id is a str or None, and b'x' was given"),
        ({"partitioner": "murmur2"}, "partitioner is a function or None, and 'murmur2' was given"),
        ({"flush_on_error": "no"}, "flush_on_error is True or False, and 'no' was given"),
        ({"acks": "1"}, "acks is one of 'all', -1, 0, 1, and '1' was given"),
        ({"first_connect_ms": "10s"}, "first_connect_ms is a whole number of milliseconds or None"),
    ],
)
def test_a_wrong_option_of_a_producer_says_what_it_is(options: Any, words: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole text is compared
        Producer(ADDRESS, **options)
    assert words in str(raised.value)


@pytest.mark.parametrize("package", CLIENTS, ids=lambda package: package.__name__)
@pytest.mark.parametrize(
    ("name", "option", "end"),
    [
        ("Producer", "lingerms", "has no option 'lingerms': did you mean 'linger_ms'?"),
        ("Producer", "linger.ms", "has no option 'linger.ms': did you mean 'linger_ms'?"),
        ("Producer", "value_serialiser", "did you mean 'value_serializer'?"),
        ("Producer", "enable_idempotence", "did you mean 'idempotent'?"),
        ("Producer", "compression_type", "did you mean 'compression'?"),
        ("Producer", "bootstrap_servers", "the address of the brokers is the first argument"),
        ("Consumer", "groupid", "did you mean 'group_id'?"),
        ("Consumer", "max_partition_fetch_bytes", "did you mean 'partition_fetch_bytes'?"),
        ("Admin", "linger_ms", "Admin has no option 'linger_ms'"),
        ("Admin", "client_idd", "Admin has no option 'client_idd': did you mean 'client_id'?"),
    ],
)
def test_an_unknown_option_names_the_class_and_what_may_be_meant(
    package: Any, name: str, option: str, end: str
) -> None:
    """It was "ProducerConfig.__init__() got an unexpected keyword argument"."""
    with pytest.raises(TypeError) as raised:
        getattr(package, name)(ADDRESS, **{option: 1})
    assert str(raised.value).startswith(f"{name} ")
    assert str(raised.value).endswith(end)


@pytest.mark.parametrize("package", CLIENTS, ids=lambda package: package.__name__)
def test_groups_and_pools_refuse_unknown_options_alike(package: Any) -> None:
    with pytest.raises(TypeError, match="TransactionGroup has no option 'client_ID'"):
        package.TransactionGroup(ADDRESS, "group", client_ID="x")
    with pytest.raises(TypeError, match="its ids are the prefix and a number"):
        package.TransactionPool(ADDRESS, prefix="p", size=1, transactional_id="x")
    with pytest.raises(TypeError, match=r"TransactionPool has no option 'linger'.*'linger_ms'"):
        package.TransactionPool(ADDRESS, prefix="p", size=1, linger=1)
    for prefix, size in (("", 1), (5, 1), ("p", 0), ("p", "2"), ("p", True)):
        with pytest.raises(ValueError, match=r"prefix is a str|size is a whole number"):
            package.TransactionPool(ADDRESS, prefix=prefix, size=size)


def test_a_configuration_that_is_right_passes() -> None:
    check_kinds(ConsumerConfig(group_id="g", partition_assignors=["range"]))
    for option in ({"linger_ms": 5}, {"linger_ms": 0.5}, {"idempotent": None}, {"acks": 1}):
        Producer(ADDRESS, **option)
    assert Admin(ADDRESS)
    assert Consumer(ADDRESS, spill_directory=Path("/tmp"))
    assert TransactionGroup(ADDRESS, "group")
    assert TransactionPool(ADDRESS, prefix="p", size=2)


# Calls of a consumer

PLACE = TopicPartition("trap", 0)
SLIPS: dict[str, tuple[Callable[[Any], object], str]] = {
    "a name is assigned": (
        lambda consumer: consumer.assign("trap"),
        r"assign takes partitions, and 'trap' is a str: .*\[\('trap', 0\)\]",
    ),
    "one partition is assigned": (
        lambda consumer: consumer.assign(PLACE),
        r"assign takes a list of partitions: give \[\('trap', 0\)\]",
    ),
    "a number is a str": (
        lambda consumer: consumer.assign([("t", "0")]),
        r"a partition is a pair of a topic, a str, and a number .*and \('t', '0'\) was given",
    ),
    "names are assigned": (
        lambda consumer: consumer.assign(["t", "u"]),
        "a partition is a pair .*and 't' was given",
    ),
    "nothing is assigned": (lambda consumer: consumer.assign(None), "and None was given"),
    "a number is negative": (lambda consumer: consumer.assign([("t", -1)]), "from 0 on"),
    "a list is paused": (
        lambda consumer: consumer.pause([PLACE]),
        "a partition is a pair",
    ),
    "a name is sought": (lambda consumer: consumer.seek("trap", 5), "a partition is a pair"),
    "an offset is a str": (
        lambda consumer: consumer.seek(PLACE, "5"),
        "an offset is a whole number, and '5' was given",
    ),
    "an offset is negative": (lambda consumer: consumer.seek(PLACE, -1), "see seek_to_beginning"),
    "a topic is bytes": (lambda consumer: consumer.subscribe(b"trap"), "b'trap'"),
    "a topic is a number": (
        lambda consumer: consumer.subscribe(["t", 5]),
        "a topic is a str of at least one character, and 5 was given",
    ),
    "a topic is empty": (lambda consumer: consumer.subscribe([""]), "and '' was given"),
    "a topic is None": (lambda consumer: consumer.subscribe(None), "and not None"),
    "a poll in seconds": (
        lambda consumer: consumer.poll(1.0),
        "timeout_ms is in milliseconds, and 1.0 was given; 1 s are 1000, and 0 does not wait",
    ),
    "a poll of a str": (
        lambda consumer: consumer.poll("1000"),
        "timeout_ms is a number of milliseconds, and '1000' was given",
    ),
    "a poll of None": (lambda consumer: consumer.poll(None), "and None was given"),
    "a negative poll": (lambda consumer: consumer.poll(-1), "at least 0 milliseconds"),
    "a poll of no record": (  # it never ended, if an iteration had left records
        lambda consumer: consumer.poll(100, max_records=0),
        "max_records is a whole number of at least 1, and 0 was given",
    ),
    "a poll of a number of records as a str": (
        lambda consumer: consumer.poll(100, max_records="5"),
        "max_records is a whole number of at least 1, and '5' was given",
    ),
    "batches in seconds": (lambda consumer: consumer.fetch_batches(5), "5 s are 5000"),
    "a name is committed": (lambda consumer: consumer.commit({"trap": 5}), "a partition is a pair"),
    "a list is committed": (lambda consumer: consumer.commit([PLACE]), "a dictionary from"),
    "an offset to commit is a str": (
        lambda consumer: consumer.commit({PLACE: "5"}),
        "the offset of trap-0 is a whole number or an OffsetAndMetadata, and '5' was given",
    ),
    "an offset to commit is a plain tuple": (
        lambda consumer: consumer.commit({PLACE: (5, "")}),
        "OffsetAndMetadata",
    ),
    "a committed name": (lambda consumer: consumer.committed("trap"), "committed takes partitions"),
    "the end of a name": (
        lambda consumer: consumer.end_offsets("trap"),
        "end_offsets takes partitions",
    ),
    "the position of a name": (lambda consumer: consumer.position("trap"), "a partition is a pair"),
    "the partitions of a number": (lambda consumer: consumer.partitions_for(5), "a topic is a str"),
}


async def awaited(found: Any) -> None:
    if hasattr(found, "__await__"):
        await found


@pytest.mark.parametrize("slip", SLIPS)
async def test_a_slip_in_a_call_of_a_consumer_has_a_sentence(
    fake_broker: FakeBroker, slip: str
) -> None:
    call, words = SLIPS[slip]
    async with Consumer(ADDRESS, connect=fake_broker.connect, group_id="g") as consumer:
        if "sought" in slip or "offset" in slip:
            consumer.assign([PLACE])
        with pytest.raises(Refused, match=words):
            await awaited(call(consumer))


@pytest.mark.parametrize("slip", SLIPS)
def test_the_blocking_consumer_says_the_same(slip: str) -> None:
    call, words = SLIPS[slip]
    with blocking.Consumer("127.0.0.1:1", group_id="g") as consumer:
        if "sought" in slip or "offset" in slip:
            consumer.assign([PLACE])
        with pytest.raises(Refused, match=words):
            call(consumer)


async def test_numbers_of_numpy_are_numbers(fake_broker: FakeBroker) -> None:
    """They were refused: programs have offsets and partitions in data frames."""
    numpy = pytest.importorskip("numpy")
    async with Consumer(ADDRESS, connect=fake_broker.connect, group_id="g") as consumer:
        consumer.assign([("t", numpy.int64(0))])
        consumer.seek(("t", numpy.int32(0)), numpy.int64(5))  # type: ignore[arg-type]
        ((place, position),) = consumer.positions().items()
        assert (place, position) == (("t", 0), 5)
        assert (type(place.partition), type(position)) == (int, int)
        await consumer.poll(numpy.int64(10))
        with pytest.raises(Refused, match="1 s are 1000"):
            await consumer.poll(numpy.float32(1))
    stored = with_metadata({TopicPartition("t", 0): numpy.int64(5)})
    assert stored == {("t", 0): OffsetAndMetadata(5)}


async def test_what_is_right_is_taken(fake_broker: FakeBroker) -> None:
    async with Consumer(ADDRESS, connect=fake_broker.connect) as consumer:
        for partitions in ([PLACE], [("t", 0)], [["t", 0]], iter([PLACE]), {PLACE: 5}, []):
            consumer.assign(partitions)  # type: ignore[arg-type]
        consumer.assign([PLACE])
        consumer.seek(PLACE, 5)
        rest_of_deadline = (1_000.004 - 1_000) * 1_000
        for timeout_ms in (0, 0.0, 10, 10.5, rest_of_deadline):
            await consumer.poll(timeout_ms)
    assert OffsetAndMetadata(5).offset == 5


# Calls of a producer

RECORDS: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "a topic of bytes": ((b"t", b"x"), {}, "a topic is a str .*and b't' was given"),
    "no topic": (("", b"x"), {}, "at least one character"),
    "a value of text": (("t", "x"), {}, "value is bytes or None, and str was given: encode it"),
    "a key of text": (("t", b"x"), {"key": "k"}, "key is bytes or None, and str was given"),
    "a partition of text": (
        ("t", b"x"),
        {"partition": "0"},
        r"a partition is a pair .* and \('t', '0'\) was given",
    ),
    "a negative partition": (("t", b"x"), {"partition": -1}, "a number from 0 on"),
    "headers of a dictionary": (("t", b"x"), {"headers": {"a": b"1"}}, "headers are pairs"),
    "headers of text": (("t", b"x"), {"headers": [("a", "1")]}, "headers are pairs"),
    "a time of text": (("t", b"x"), {"timestamp_ms": "now"}, "timestamp_ms is a whole number"),
}


@pytest.mark.parametrize("slip", RECORDS)
async def test_a_record_that_cannot_be_sent_says_why(
    fake_broker: FakeBroker, producer_of: MakeProducer, slip: str
) -> None:
    args, options, words = RECORDS[slip]
    async with producer_of(fake_broker) as producer:
        with pytest.raises(Refused, match=words):
            await producer.send(*args, **options)


async def test_a_flush_in_seconds_is_refused(
    fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    async with producer_of(fake_broker) as producer:
        with pytest.raises(Refused, match="5 s are 5000"):
            await producer.flush(5)
        await producer.flush(5_000)
