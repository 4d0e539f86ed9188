"""Elections that an administrator asks for: guarded writes, many at once, in limited time."""

from random import Random
from uuid import UUID

from odradek.broker.cluster.image import NO_LEADER, BrokerImage, PartitionImage, TopicImage
from odradek.broker.cluster.requested import RequestedElections
from odradek.broker.cluster.store import (
    broker_key,
    pack_broker,
    pack_partition,
    partition_key,
    read_partition,
    topic_puts,
)
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.cluster.members import ReadMetadata, metadata_of
from tests.fakes.meta_store import FakeMetaStore

PLACE = TopicPartition("t", 0)
LEADERLESS = PartitionImage(leader=NO_LEADER, leader_epoch=7, replicas=(1, 2, 3), isr=(3,), elr=())
LED_BY_2 = PartitionImage(leader=2, leader_epoch=7, replicas=(1, 2, 3), isr=(1, 2, 3))


def register(store: FakeMetaStore, node_id: int) -> None:
    store.put({broker_key(node_id): None})
    store.put(
        {broker_key(node_id): pack_broker(BrokerImage(node_id=node_id, host="h", port=1), "d")}
    )


async def cluster_of(
    store: FakeMetaStore, partition: PartitionImage, count: int = 1
) -> tuple[RequestedElections, ReadMetadata]:
    """Return a cluster of a topic of equal partitions. Brokers 1 and 2 are registered."""
    topic = TopicImage(
        name="t",
        topic_id=UUID(int=1),
        configs={},
        partitions=(partition,) * count,
        min_insync_replicas=2,
    )
    register(store, 1)
    register(store, 2)
    store.put(topic_puts(topic))
    metadata = await metadata_of(store, Random(1))
    return RequestedElections(store, metadata), metadata


def stored(store: FakeMetaStore, index: int = 0) -> PartitionImage:
    key = partition_key("t", index)
    return read_partition(key, store.values[key])


def code_of(error: KafkaError | None) -> ErrorCode:
    assert error is not None
    return error.code


async def test_the_replica_that_was_asked_for_is_elected_or_the_first() -> None:
    store = FakeMetaStore()
    elections, metadata = await cluster_of(store, LEADERLESS, 2)
    asked = await elections.elect([PLACE], is_unclean=True, candidate=2, timeout_ms=1_000)
    other = TopicPartition("t", 1)
    first = await elections.elect([other], is_unclean=True, timeout_ms=1_000)
    assert (asked, first) == ({PLACE: None}, {other: None})
    assert (stored(store).leader, stored(store, 1).leader) == (2, 1)
    assert elections.unclean_count == 2
    assert (stored(store).isr, stored(store).leader_epoch) == ((2,), 8)
    image = metadata.image.partition(*PLACE)
    assert image is not None
    assert image.leader == 2


async def test_an_election_is_clean_if_the_image_has_a_whole_replica() -> None:
    """Its broker has just come back, and the controller has not elected it yet."""
    store = FakeMetaStore()
    elections, metadata = await cluster_of(store, LEADERLESS)
    register(store, 3)
    await metadata.wait_reached(store.revision)
    assert await elections.elect([PLACE], is_unclean=True, candidate=1, timeout_ms=1_000) == {
        PLACE: None
    }
    assert (stored(store).leader, elections.unclean_count) == (3, 0)


async def test_an_election_rests_on_the_partition_and_on_the_broker_that_it_elects() -> None:
    store = FakeMetaStore()
    elections, _ = await cluster_of(store, LEADERLESS)

    def elected_meanwhile() -> None:
        store.before_txn = lambda: None
        store.put({partition_key("t", 0): pack_partition(LED_BY_2)})

    store.before_txn = elected_meanwhile
    outcomes = await elections.elect([PLACE], is_unclean=True, timeout_ms=1_000)
    assert code_of(outcomes[PLACE]) is ErrorCode.ELECTION_NOT_NEEDED
    assert stored(store).leader == 2

    store = FakeMetaStore()
    elections, _ = await cluster_of(store, LEADERLESS)

    def gone_meanwhile() -> None:
        store.before_txn = lambda: None
        store.put({broker_key(1): None})

    store.before_txn = gone_meanwhile
    outcomes = await elections.elect([PLACE], is_unclean=True, candidate=1, timeout_ms=1_000)
    assert code_of(outcomes[PLACE]) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert stored(store).isr == (3,)  # the replica that has everything may still lead


async def test_a_preferred_leader_is_elected_only_in_sync_and_once() -> None:
    store = FakeMetaStore()
    elections, _ = await cluster_of(store, LED_BY_2)
    assert await elections.elect([PLACE], is_unclean=False, timeout_ms=1_000) == {PLACE: None}
    assert (stored(store).leader, stored(store).isr) == (1, (1, 2, 3))
    again = await elections.elect([PLACE], is_unclean=False, timeout_ms=1_000)
    assert code_of(again[PLACE]) is ErrorCode.ELECTION_NOT_NEEDED
    elections, _ = await cluster_of(store := FakeMetaStore(), LEADERLESS)
    refused = await elections.elect([PLACE], is_unclean=False, timeout_ms=1_000)
    assert code_of(refused[PLACE]) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert stored(store).leader == NO_LEADER


async def test_more_partitions_than_a_transaction_has_operations_and_one_that_is_not_there() -> (
    None
):
    store = FakeMetaStore(max_operations=128)
    elections, _ = await cluster_of(store, LED_BY_2, 130)
    nowhere = TopicPartition("t", 130)
    wanted = [*elections.all_partitions, nowhere]
    outcomes = await elections.elect(wanted, is_unclean=False, timeout_ms=1_000)
    assert code_of(outcomes.pop(nowhere)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcomes == dict.fromkeys(wanted[:-1])
    assert {stored(store, index).leader for index in range(130)} == {1}


async def test_a_store_that_is_away_is_an_error_of_each_partition(autojump_clock: object) -> None:
    store = FakeMetaStore()
    elections, _ = await cluster_of(store, LED_BY_2)
    store.is_refused = True
    refused = await elections.elect([PLACE], is_unclean=False, timeout_ms=1_000)
    assert refused[PLACE] is not None
    store.is_refused = False
    store.cut()
    late = await elections.elect([PLACE], is_unclean=False, timeout_ms=5_000)
    assert code_of(late[PLACE]) is ErrorCode.REQUEST_TIMED_OUT
