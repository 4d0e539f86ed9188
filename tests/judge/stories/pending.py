"""Offsets of a group while a transaction may still change them, asked for in every version."""

from typing import Any, Final

from odradek.protocol.apis.group_offsets import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.apis.txn import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.schema import ZERO_UUID
from tests.judge.broker import Broker, Identity
from tests.judge.names import code_name
from tests.judge.story import variants

T0: Final = ("t", 0)
STABLE_FROM: Final = 7
GROUPS_FROM: Final = 8
IDS_FROM: Final = 10
INDEXES: Final = (0, 1, 2)


def commit_in_transaction(
    broker: Broker, producer: Identity, offset: int, leader_epoch: int
) -> None:
    """TxnOffsetCommit with everything that can be stored."""
    partition = TxnOffsetCommitRequestPartition(
        partition_index=0,
        committed_offset=offset,
        committed_leader_epoch=leader_epoch,
        committed_metadata=f"at {offset}",
    )
    topic = TxnOffsetCommitRequestTopic(name=broker.names.on_wire("t"), partitions=(partition,))
    request = TxnOffsetCommitRequest(
        transactional_id=broker.wire_id("x") or "",
        group_id=broker.wire_group("g"),
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=(topic,),
    )
    what = f"commit offset {offset} of leader epoch {leader_epoch}"
    broker.ask(what, TXN_OFFSET_COMMIT, 3, request)


def fetch(
    broker: Broker, version: int, *, groups: tuple[str, ...] = ("g",), has_topics: bool = True
) -> None:
    """OffsetFetch, stable from version 7 on; without topics it asks for all that there are."""
    name = broker.names.on_wire("t")
    if version >= GROUPS_FROM:
        topic_id = broker.names.topic_ids["t"] if version >= IDS_FROM else ZERO_UUID
        topics = (
            OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=INDEXES),
        )
        request = OffsetFetchRequest(
            groups=tuple(
                OffsetFetchRequestGroup(
                    group_id=broker.names.on_wire(group), topics=topics if has_topics else None
                )
                for group in groups
            ),
            require_stable=True,
        )
    else:
        old_topics = (OffsetFetchRequestTopic(name=name, partition_indexes=INDEXES),)
        request = OffsetFetchRequest(
            group_id=broker.names.on_wire(groups[0]),
            topics=old_topics if has_topics else None,
            require_stable=version >= STABLE_FROM,
        )

    def answer(response: Any) -> str:
        if version < GROUPS_FROM:
            return _described(response)
        return " | ".join(
            f"{broker.names.here(group.group_id)} {_described(group)}" for group in response.groups
        )

    words = "t" if has_topics else "all"
    broker.ask(
        f"offsets v{version} {' '.join(groups)} of {words}", OFFSET_FETCH, version, request, answer
    )


def _described(found: Any) -> str:
    said = [code_name(found.error_code)]
    for topic in found.topics:
        for each in sorted(topic.partitions, key=lambda partition: int(partition.partition_index)):
            code = code_name(each.error_code)
            said.append(
                f"{each.partition_index}={each.committed_offset}/{each.committed_leader_epoch} "
                f"{each.metadata!r} {code}"
            )
    return " ".join(said)


@variants(version=range(1, 11), commit=(True, False))
def story_asked_for_at_every_step(broker: Broker, version: int, commit: bool) -> None:
    broker.topic("t", 2)
    broker.find("g", key_type=0)
    producer = broker.init("x")
    broker.add_offsets("x", producer, "g")
    fetch(broker, version)
    commit_in_transaction(broker, producer, 5, 0)
    fetch(broker, version)
    broker.end("x", producer, commit=True)
    fetch(broker, version)
    broker.add_offsets("x", producer, "g")
    commit_in_transaction(broker, producer, 6, -1)
    for has_topics in (True, False):
        if has_topics or version >= 2:
            fetch(broker, version, has_topics=has_topics)
    broker.end("x", producer, commit=commit)
    for has_topics in (True, False):
        if has_topics or version >= 2:
            fetch(broker, version, has_topics=has_topics)


@variants(version=(8, 9, 10))
def story_two_groups_of_which_one_is_unstable(broker: Broker, version: int) -> None:
    broker.topic("t", 2)
    for group in ("g", "h"):
        broker.find(group, key_type=0)
    producer = broker.init("x")
    for group in ("g", "h"):
        broker.add_offsets("x", producer, group)
    commit_in_transaction(broker, producer, 5, 0)
    fetch(broker, version, groups=("h", "g", "never"))
    fetch(broker, version, groups=("h", "g"), has_topics=False)
    broker.end("x", producer, commit=True)
    fetch(broker, version, groups=("g", "h", "g"))
