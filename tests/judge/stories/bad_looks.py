"""The APIs that look at transactions, asked for what is not there."""

from typing import Any, Final

from odradek.protocol.apis.transactions import (
    DESCRIBE_PRODUCERS,
    LIST_TRANSACTIONS,
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    ListTransactionsRequest,
)
from tests.judge.asking import Batch, describe, send
from tests.judge.broker import Broker, Identity
from tests.judge.names import NOBODY as NOBODYS_ID
from tests.judge.names import code_name
from tests.judge.story import variants

T0: Final = ("t", 0)
MANY: Final = 10_000


def begin(broker: Broker) -> tuple[Identity, Identity]:
    """An id with a transaction open in a partition, and one without."""
    broker.topic("t", 2)
    idle = broker.init("idle")
    producer = broker.init("x")
    send(broker, "x", Batch(T0, producer, count=2, is_transactional=True), version=12)
    return producer, idle


def listed(
    broker: Broker,
    *,
    version: int,
    states: tuple[str, ...] = (),
    producers: tuple[int, ...] = (),
    duration_ms: int = -1,
    pattern: str | None = None,
) -> None:
    """ListTransactions; of what it lists only the story's own."""
    request = ListTransactionsRequest(
        state_filters=states,
        producer_id_filters=producers,
        duration_filter=duration_ms,
        transactional_id_pattern=pattern,
    )

    def answer(response: Any) -> str:
        own = sorted(
            f"{broker.names.here(found.transactional_id)} {found.transaction_state} "
            f"{broker.names.producer(found.producer_id)}"
            for found in response.transaction_states
            if found.transactional_id.startswith(broker.names.prefix)
        )
        unknown = [f"unknown {state!r}" for state in sorted(response.unknown_state_filters)]
        return " | ".join((code_name(response.error_code), *unknown, *own))

    shown = None if pattern is None else pattern.replace(broker.names.prefix, "")
    producer = [broker.names.producer(producer_id) for producer_id in producers]
    what = f"list v{version} {list(states)} {producer} longer than {duration_ms} like {shown!r}"
    broker.ask(what, LIST_TRANSACTIONS, version, request, answer)


@variants(version=(0, 1, 2))
def story_filters_of_states_and_producers(broker: Broker, version: int) -> None:
    producer, idle = begin(broker)
    for states in (
        (),
        ("Ongoing",),
        ("ongoing",),
        ("Empty", "Ongoing"),
        ("Ongoing", "Ongoing"),
        ("", "Ongoing"),
        ("No such state",),
        ("PrepareEpochFence", "Dead", "CompleteAbort"),
    ):
        listed(broker, version=version, states=states)
    for producers in (
        (producer.producer_id,),
        (producer.producer_id, idle.producer_id),
        (NOBODYS_ID,),
        (-1,),
        (producer.producer_id, NOBODYS_ID, -5),
    ):
        listed(broker, version=version, producers=producers)
    listed(broker, version=version, states=("Empty",), producers=(producer.producer_id,))
    broker.end("x", producer, commit=True, version=5)
    listed(broker, version=version)


@variants(version=(1, 2))
def story_filters_of_durations(broker: Broker, version: int) -> None:
    producer, _ = begin(broker)
    for duration_ms in (-1, 0, 3_600_000, -2, 2**63 - 1, -(2**63)):
        listed(broker, version=version, duration_ms=duration_ms)
    broker.end("x", producer, commit=True, version=5)
    listed(broker, version=version, duration_ms=3_600_000)


def story_patterns(broker: Broker) -> None:
    producer, _ = begin(broker)
    prefix = broker.names.prefix
    for pattern in ("", "x", f"{prefix}x", f"{prefix}.*", ".*idle", "(", "[", "*", "(?i).*IDLE"):
        listed(broker, version=2, pattern=pattern)
    broker.end("x", producer, commit=True, version=5)


def story_ids_to_describe(broker: Broker) -> None:
    producer, _ = begin(broker)
    describe(broker)
    describe(broker, "")
    describe(broker, "never", "x", "", "idle")
    describe(broker, "x", "x")
    describe(broker, "n" * 32_000)
    describe(broker, *(f"n{number}" for number in range(100)))
    broker.end("x", producer, commit=True, version=5)
    describe(broker, "x")


def story_partitions_to_describe(broker: Broker) -> None:
    producer, _ = begin(broker)
    for wanted in (
        (("t", (0, 1)),),
        (("t", (1, 2, -1)),),
        (("no", (0,)), ("t", (1,))),
        (("", (0,)),),
        (("__no", (0,)),),
        (("t", ()),),
        (("t", (1, 1)),),
        (("t", (1,)), ("t", (1,))),
        (),
    ):
        _describe_producers(broker, wanted)
    _describe_producers(broker, (("no", tuple(range(MANY))),), is_counted=True)
    broker.end("x", producer, commit=True, version=5)


def _describe_producers(
    broker: Broker, wanted: tuple[tuple[str, tuple[int, ...]], ...], *, is_counted: bool = False
) -> None:
    request = DescribeProducersRequest(
        topics=tuple(
            DescribeProducersTopicRequest(
                name=broker.names.on_wire(name), partition_indexes=indexes
            )
            for name, indexes in wanted
        )
    )

    def answer(response: Any) -> str:
        found = [(topic.name, each) for topic in response.topics for each in topic.partitions]
        if is_counted:
            codes = [code_name(each.error_code) for _, each in found]
            return " ".join(f"{codes.count(code)} {code}" for code in sorted(set(codes)))
        return " | ".join(
            sorted(
                f"{broker.names.here(name)}-{each.partition_index} {code_name(each.error_code)} "
                f"{len(each.active_producers)}"
                for name, each in found
            )
        )

    words = f"{MANY} partitions" if is_counted else str(wanted)
    broker.ask(f"producers of {words}", DESCRIBE_PRODUCERS, 0, request, answer)
