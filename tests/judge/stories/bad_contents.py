"""Transactional requests with contents that no good client sends: partitions, offsets, members and
batches that are not there, thousands of them, or no batch at all. As in `bad_input`, nothing is
left open behind them."""

from typing import Any, Final

from odradek.protocol.apis.txn import (
    ADD_PARTITIONS_TO_TXN,
    TXN_OFFSET_COMMIT,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.judge.asking import Batch, Marker, describe, mark, send
from tests.judge.broker import Broker, Identity
from tests.judge.names import code_name
from tests.judge.story import variants

T0: Final = ("t", 0)
T1: Final = ("t", 1)
LONG_GROUP: Final = 32_000
MANY: Final = 10_000
NEW: Final = 5
"""EndTxn of TV2."""


# Partitions


@variants(version=(0, 1, 2, 3, 4, 5))
def story_unknown_among_known(broker: Broker, version: int) -> None:
    broker.topic("t", 2)
    producer = broker.init("x")
    for wanted in (
        [T0, ("no", 0)],
        [T0, ("t", 2)],
        [T0, ("t", -1)],
        [T0, ("", 0)],
        [T0, ("a b", 0)],
        [T0, ("..", 0)],
        [T0, ("n" * 300, 0)],
        [T0, ("__consumer_offsets", 0)],
        [T0, ("__transaction_state", 0)],
        [T0, ("__consumer_offsets", 77)],
        [],
        [T0, T0],
    ):
        broker.add("x", producer, wanted, version=version)
    describe(broker, "x")
    broker.end("x", producer, commit=False)


@variants(call=(("add", 0), ("add", 3), ("add", 4), ("add", 5), ("verify", 4), ("verify", 5)))
def story_thousands_of_partitions_to_add(broker: Broker, call: tuple[str, int]) -> None:
    api, version = call
    verify_only = api == "verify"
    broker.topic("t", 2)
    producer = broker.init("x")
    for topic in ("t", "no"):
        topics: tuple[AddPartitionsToTxnTopic, ...] = (
            AddPartitionsToTxnTopic(
                name=broker.names.on_wire(topic), partitions=tuple(range(MANY))
            ),
        )
        _ask_to_add(broker, version, producer, topics, verify_only, f"{MANY} partitions of {topic}")
    topics = tuple(
        AddPartitionsToTxnTopic(name=broker.names.on_wire(f"no{number}"), partitions=(0,))
        for number in range(MANY)
    )
    _ask_to_add(broker, version, producer, topics, verify_only, f"{MANY} topics")
    describe(broker, "x")
    broker.end("x", producer, commit=True)
    broker.end_offsets("t")


def _ask_to_add(
    broker: Broker,
    version: int,
    producer: Identity,
    topics: tuple[AddPartitionsToTxnTopic, ...],
    verify_only: bool,
    words: str,
) -> None:
    name = broker.wire_id("x") or ""
    if version >= 4:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=verify_only,
            topics=topics,
        )
        request = AddPartitionsToTxnRequest(transactions=(transaction,))
    else:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=topics,
        )

    def answer(response: Any) -> str:
        found = [t for r in response.results_by_transaction for t in r.topic_results]
        found += response.results_by_topic_v3_and_below
        codes = [code_name(p.partition_error_code) for t in found for p in t.results_by_partition]
        return " ".join(f"{codes.count(code)} {code}" for code in sorted(set(codes)))

    broker.ask(f"add v{version} {words}", ADD_PARTITIONS_TO_TXN, version, request, answer)


@variants(version=(4, 5))
def story_several_transactions_in_one_request(broker: Broker, version: int) -> None:
    """AddPartitionsToTxn of brokers: each is answered for itself."""
    broker.topic("t", 2)
    first, second = broker.init("x"), broker.init("y")

    def transaction(
        name: str, producer: Identity, *indexes: int, topic: str = "t", verify_only: bool = False
    ) -> AddPartitionsToTxnTransaction:
        wanted = AddPartitionsToTxnTopic(name=broker.names.on_wire(topic), partitions=indexes)
        return AddPartitionsToTxnTransaction(
            transactional_id=broker.names.on_wire(name),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=verify_only,
            topics=(wanted,),
        )

    def result(found: Any) -> str:
        codes = sorted(
            f"{broker.names.here(topic.name)}-{each.partition_index} "
            f"{code_name(each.partition_error_code)}"
            for topic in found.topic_results
            for each in topic.results_by_partition
        )
        return " ".join((broker.names.here(found.transactional_id), *codes))

    def answer(response: Any) -> str:
        return " | ".join(sorted(map(result, response.results_by_transaction)))

    for transactions in (
        (transaction("x", first, 0), transaction("y", second, 1)),
        (transaction("x", second, 1), transaction("y", second, 0)),
        (transaction("x", first, 1, verify_only=True), transaction("y", second.newer(), 1)),
        (transaction("", first, 1), transaction("z", second, 1), transaction("x", first, 0, 1)),
        (transaction("x", first, 0, topic="no"), transaction("y", second, 0, 1, verify_only=True)),
    ):
        request = AddPartitionsToTxnRequest(transactions=transactions)
        words = f"add v{version} {len(transactions)} transactions"
        broker.ask(words, ADD_PARTITIONS_TO_TXN, version, request, answer)
    describe(broker, "x", "y")
    broker.end("x", first, commit=True)
    broker.end("y", second, commit=False)


@variants(version=(3, 9, 12, 13))
def story_thousands_of_partitions_to_produce_to(broker: Broker, version: int) -> None:
    broker.topic("t")
    producer = broker.init("x")
    broker.add("x", producer, [T0])
    batches = [Batch(("t", index), producer, is_transactional=True) for index in range(MANY // 10)]
    send(broker, "x", *batches, version=version, is_counted=True)
    describe(broker, "x")
    broker.end("x", producer, commit=True)
    broker.end_offsets("t")


# Offsets


def commit_offsets(
    broker: Broker,
    producer: Identity,
    topics: tuple[TxnOffsetCommitRequestTopic, ...],
    *,
    version: int,
    words: str,
    group: str = "g",
) -> None:
    """TxnOffsetCommit of anything; the codes are counted."""
    request = TxnOffsetCommitRequest(
        transactional_id=broker.wire_id("x") or "",
        group_id=broker.names.on_wire(group),
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=topics,
    )

    def answer(response: Any) -> str:
        codes = [
            code_name(found.error_code) for topic in response.topics for found in topic.partitions
        ]
        return " ".join(f"{codes.count(code)} {code}" for code in sorted(set(codes)))

    broker.ask(f"commit offsets v{version} {words}", TXN_OFFSET_COMMIT, version, request, answer)


def offsets_of(
    broker: Broker, topic: str, *indexes: int, offset: int = 5, metadata: str | None = ""
) -> TxnOffsetCommitRequestTopic:
    return TxnOffsetCommitRequestTopic(
        name=broker.names.on_wire(topic),
        partitions=tuple(
            TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=metadata
            )
            for index in indexes
        ),
    )


@variants(version=(0, 3, 5))
def story_offsets_of_any_kind(broker: Broker, version: int) -> None:
    broker.topic("t", 2)
    broker.find("g", key_type=0)
    producer = broker.init("x")
    broker.add_offsets("x", producer, "g")
    good = offsets_of(broker, "t", 1)
    for words, topics in {
        "metadata of 4096 bytes": (offsets_of(broker, "t", 0, metadata="m" * 4096),),
        "metadata of 4097 bytes": (good, offsets_of(broker, "t", 0, metadata="m" * 4097)),
        "metadata null": (offsets_of(broker, "t", 0, metadata=None),),
        "offset -1": (offsets_of(broker, "t", 0, offset=-1),),
        "offset -2^63": (offsets_of(broker, "t", 0, offset=-(2**63)),),
        "offset 2^63-1": (offsets_of(broker, "t", 0, offset=2**63 - 1),),
        "nothing": (),
        "a topic without partitions": (offsets_of(broker, "t"),),
        "an unknown topic": (good, offsets_of(broker, "no", 0)),
        "a topic without a name": (good, offsets_of(broker, "", 0)),
        "an internal topic": (good, offsets_of(broker, "__transaction_state", 0)),
    }.items():
        commit_offsets(broker, producer, topics, version=version, words=words)
    for group in ("", "h", "g" * LONG_GROUP):
        words = f"group of {len(group)} characters"
        commit_offsets(broker, producer, (good,), version=version, words=words, group=group)
    broker.committed("g", [T0, T1], stable=True)
    broker.end("x", producer, commit=True)
    broker.committed("g", [T0, T1, ("__transaction_state", 0)], stable=True)


@variants(version=(3, 5))
def story_offsets_of_partitions_that_are_not_there(broker: Broker, version: int) -> None:
    broker.topic("t")
    broker.find("g", key_type=0)
    producer = broker.init("x")
    broker.add_offsets("x", producer, "g")
    offsets = offsets_of(broker, "t", *range(MANY))
    commit_offsets(broker, producer, (offsets,), version=version, words=f"{MANY} partitions")
    broker.end("x", producer, commit=True)
    broker.committed("g", [T0], stable=True)


@variants(version=(3, 4, 5))
def story_members_that_are_not_there(broker: Broker, version: int) -> None:
    broker.topic("t")
    broker.find("g", key_type=0)
    producer = broker.init("x")
    broker.add_offsets("x", producer, "g")
    for generation, member, instance in (
        (-1, "", None),
        (-1, "m", None),
        (-1, "", "i"),
        (0, "", None),
        (5, "", None),
        (5, "m", None),
        (5, "m", "i"),
        (-2, "", None),
        (2**31 - 1, "m", None),
    ):
        offsets = {T0: generation}
        broker.commit_offsets(
            "x",
            producer,
            "g",
            offsets,
            version=version,
            generation=generation,
            member=member,
            instance=instance,
        )
    broker.committed("g", [T0], stable=True)
    broker.end("x", producer, commit=True)
    broker.committed("g", [T0], stable=True)


@variants(version=(0, 2, 3, 4))
def story_groups_of_any_name(broker: Broker, version: int) -> None:
    broker.find("g", key_type=0)
    producer = broker.init("x")
    for group in ("", "g", " ", "g" * LONG_GROUP):
        broker.add_offsets("x", producer, group, version=version)
    broker.end("x", producer, commit=True)


@variants(version=(3, 9, 12))
def story_no_batch_at_all(broker: Broker, version: int) -> None:
    """A transactional Produce that has nothing good in it."""
    broker.topic("t")
    producer = broker.init("x")
    broker.add("x", producer, [T0])
    broker.send_batch("zeros", "x", "t", 0, bytes(100), version=version)
    good = Batch(T0, producer, is_transactional=True).encode()
    broker.send_batch("cut off", "x", "t", 0, good[:-1], version=version)
    broker.send_batch("twice", "x", "t", 0, good + good, version=version)
    spoilt = bytearray(good)
    spoilt[-1] ^= 1
    broker.send_batch("bad CRC", "x", "t", 0, spoilt, version=version)
    broker.end_offsets("t")
    broker.send_batch("good", "x", "t", 0, good, version=version)
    broker.end("x", producer, commit=True)


@variants(version=(3, 12))
def story_batches_for_internal_topics(broker: Broker, version: int) -> None:
    """Outside of transactions: the state topics are the broker's own."""
    producer = broker.init(None)
    for topic in ("__consumer_offsets", "__transaction_state"):
        for partition in (0, 77):
            send(broker, None, Batch((topic, partition)), version=version)
            send(broker, None, Batch((topic, partition), producer), version=version)


@variants(version=(1, 2))
def story_a_marker_for_a_transaction_that_goes_on(broker: Broker, version: int) -> None:
    """Any client may send a marker. The transaction's own end is not lost by it."""
    broker.topic("t")
    producer = broker.init("x")
    send(broker, "x", Batch(T0, producer, is_transactional=True), version=12)
    mark(broker, Marker(producer.older(), [T0], False, -1), version=version)
    mark(broker, Marker(producer, [T0], True, -1), version=version)
    broker.end_offsets("t")
    send(broker, "x", Batch(T0, producer, 1, is_transactional=True), version=12)
    after = broker.end("x", producer, commit=False, version=NEW)
    broker.end_offsets("t")
    send(broker, "x", Batch(T0, after, is_transactional=True), version=12)
    broker.end("x", after, commit=True, version=NEW)


@variants(version=(3, 9, 12))
def story_no_time_to_produce_in(broker: Broker, version: int) -> None:
    broker.topic("t")
    producer = broker.init("x")
    broker.add("x", producer, [T0])
    for sequence, timeout_ms in enumerate((0, -1, -(2**31), 2**31 - 1)):
        batch = Batch(T0, producer, sequence, is_transactional=True)
        send(broker, "x", batch, version=version, timeout_ms=timeout_ms)
    broker.end("x", producer, commit=True)
