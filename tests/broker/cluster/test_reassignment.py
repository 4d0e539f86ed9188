"""The steps of a move, as values; and the writes that begin it and end it."""

from dataclasses import replace
from random import Random
from uuid import UUID

import pytest

from odradek.broker.cluster.election import with_isr
from odradek.broker.cluster.image import NO_LEADER, BrokerImage, PartitionImage, TopicImage
from odradek.broker.cluster.reassignment import begun, complete, completions, revert
from odradek.broker.cluster.requested_moves import RequestedMoves
from odradek.broker.cluster.store import (
    broker_key,
    pack_broker,
    pack_partition,
    partition_key,
    read_partition,
    topic_puts,
)
from odradek.broker.environment.env import Versioned
from odradek.broker.partitions.in_sync_view import InSyncView
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.cluster.members import ReadMetadata, metadata_of
from tests.fakes.meta_store import FakeMetaStore

E = ErrorCode
PLACE = TopicPartition("t", 0)
LED_BY_1 = PartitionImage(leader=1, leader_epoch=7, replicas=(1, 2), isr=(1, 2), epoch=9)


def brokers(*node_ids: int) -> dict[int, BrokerImage]:
    return {node: BrokerImage(node_id=node, host="h", port=1) for node in node_ids}


def test_a_move_adds_first_and_names_what_goes() -> None:
    moving = begun(LED_BY_1, (3, 1))
    assert (moving.replicas, moving.adding, moving.removing) == ((3, 1, 2), (3,), (2,))
    assert (moving.leader, moving.leader_epoch, moving.isr) == (1, 7, (1, 2))
    assert moving.is_moving
    assert begun(LED_BY_1, (1, 2)) == LED_BY_1
    turned = begun(LED_BY_1, (2, 1))
    assert (turned.replicas, turned.is_moving) == ((2, 1), False)


def test_another_target_takes_the_place_of_the_one_before() -> None:
    moving = begun(begun(LED_BY_1, (3, 4)), (4, 5))
    assert moving.replicas == (4, 5, 3, 1, 2)
    assert moving.arriving == (4, 5)
    assert moving.removing == (3, 1, 2)
    back = begun(begun(LED_BY_1, (3, 4)), (1, 2))
    assert (back.replicas, back.arriving, back.removing) == ((1, 2, 3, 4), (), (3, 4))
    again = begun(moving, (3, 1))
    assert (again.arriving, again.removing) == ((3,), (4, 5, 2))


def test_what_a_move_was_adding_when_it_was_given_up_is_not_needed_to_be_in_sync() -> None:
    """A partition with one replica takes acks=all from it alone, whatever min.insync.replicas."""
    alone = PartitionImage(leader=1, leader_epoch=7, replicas=(1,), isr=(1,), epoch=9)
    moving = begun(begun(alone, (2,)), (3,))
    assert moving.replicas == (3, 2, 1)
    lead = InSyncView.over(
        node_id=1,
        leader_epoch=7,
        replicas=moving.replicas,
        isr=moving.isr,
        partition_epoch=9,
        adding=moving.adding,
        now=0.0,
    )
    assert lead.has_enough(2)
    assert with_isr(moving, (1,), 2).elr == ()
    done = complete(replace(moving, isr=(1, 3)), brokers(1, 3), 2)
    assert done is not None, "the replica that was given up is away"
    assert (done.replicas, done.isr, done.is_moving) == ((3,), (3,), False)


def test_a_cancelled_move_does_not_keep_what_the_move_before_it_was_adding() -> None:
    moving = replace(begun(begun(LED_BY_1, (3, 2)), (4, 2)), isr=(1, 2, 3))
    reverted = revert(moving, brokers(1, 2, 3, 4), 2)
    assert reverted is not None
    assert (set(reverted.replicas), set(reverted.isr)) == ({1, 2}, {1, 2})


def test_a_move_is_complete_when_the_new_replicas_are_in_sync() -> None:
    moving = begun(LED_BY_1, (3, 4))
    there = brokers(1, 2, 3, 4)
    assert complete(moving, there, 1) is None
    assert complete(replace(moving, isr=(3, 1, 2)), there, 1) is None
    done = complete(replace(moving, isr=(3, 4, 1, 2)), there, 1)
    assert done is not None
    assert (done.replicas, done.isr, done.is_moving) == ((3, 4), (3, 4), False)
    assert (done.leader, done.leader_epoch) == (3, 8)


def test_the_leader_stays_if_it_is_in_the_target_and_gets_an_epoch() -> None:
    done = complete(replace(begun(LED_BY_1, (3, 1)), isr=(3, 1, 2)), brokers(1, 2, 3), 2)
    assert done is not None
    assert (done.leader, done.leader_epoch, done.isr, done.elr) == (1, 8, (3, 1), ())


def test_a_move_waits_for_as_many_in_sync_as_writes_need() -> None:
    """A target with one replica in sync would refuse acks=all, which the partition accepts now."""
    moving = replace(begun(LED_BY_1, (2, 3)), isr=(1, 3))
    assert complete(moving, brokers(1, 2, 3), 2) is None
    assert complete(moving, brokers(1, 2, 3), 1) is not None


def test_a_move_does_not_end_with_a_leader_that_is_away_or_leaves() -> None:
    moving = replace(begun(LED_BY_1, (3,)), isr=(1, 3))
    assert complete(moving, brokers(1, 2), 1) is None
    leaving = {3: replace(brokers(3)[3], is_leaving=True)}
    assert complete(moving, brokers(1) | leaving, 1) is None


def test_eligible_replicas_that_go_are_not_eligible_any_more() -> None:
    moving = replace(begun(LED_BY_1, (3, 4)), isr=(3, 4), elr=(1, 2))
    done = complete(moving, brokers(3, 4), 2)
    assert done is not None
    assert done.elr == ()


def test_a_cancelled_move_goes_back_if_a_replica_before_it_is_in_sync() -> None:
    moving = replace(begun(LED_BY_1, (3, 4)), isr=(1, 2, 3), leader=3)
    reverted = revert(moving, brokers(1, 2, 3, 4), 1)
    assert reverted is not None
    assert (set(reverted.replicas), set(reverted.isr)) == ({1, 2}, {1, 2})
    assert reverted.leader in (1, 2)
    assert reverted.leader_epoch == 8
    assert revert(replace(moving, isr=(3,)), brokers(1, 2, 3), 1) is None


def test_a_move_is_kept_in_the_store() -> None:
    moving = begun(LED_BY_1, (3, 1))
    stored = Versioned(value=pack_partition(moving), create_revision=1, mod_revision=9)
    assert read_partition("/partitions/t/0", stored) == moving


# writes


async def cluster_of(
    store: FakeMetaStore, partition: PartitionImage, count: int = 1
) -> tuple[RequestedMoves, ReadMetadata]:
    """Return a cluster of a topic of equal partitions. Brokers 1 to 3 are registered."""
    for node in (1, 2, 3):
        image = BrokerImage(node_id=node, host="h", port=1)
        store.put({broker_key(node): pack_broker(image, "d")})
    topic = TopicImage(name="t", topic_id=UUID(int=1), configs={}, partitions=(partition,) * count)
    store.put(topic_puts(topic))
    metadata = await metadata_of(store, Random(1))
    return RequestedMoves(store, metadata), metadata


async def move(
    moves: RequestedMoves,
    target: tuple[int, ...] | None,
    where: TopicPartition = PLACE,
    *,
    may_change_factor: bool = True,
) -> ErrorCode | None:
    found = await moves.move({where: target}, may_change_factor=may_change_factor, timeout_ms=1_000)
    error = found[where]
    return None if error is None else error.code


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((1, 9), E.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), E.INVALID_REPLICA_ASSIGNMENT),
        ((), E.INVALID_REPLICA_ASSIGNMENT),
        (None, E.NO_REASSIGNMENT_IN_PROGRESS),
        ((1, 2), None),
        ((3, 2), None),
    ],
)
async def test_targets(target: tuple[int, ...] | None, code: ErrorCode | None) -> None:
    moves, _ = await cluster_of(FakeMetaStore(), LED_BY_1)
    assert await move(moves, target) == code


async def test_what_does_not_exist_and_another_number_of_replicas() -> None:
    moves, _ = await cluster_of(FakeMetaStore(), LED_BY_1)
    for where in (TopicPartition("u", 0), TopicPartition("t", 1), TopicPartition("t", -1)):
        assert await move(moves, (1, 2), where) == E.UNKNOWN_TOPIC_OR_PARTITION
    code = await move(moves, (3,), may_change_factor=False)
    assert code == E.INVALID_REPLICATION_FACTOR
    assert await move(moves, (3, 1), may_change_factor=False) is None


async def test_a_replica_whose_broker_is_away_may_stay() -> None:
    store = FakeMetaStore()
    moves, metadata = await cluster_of(store, LED_BY_1)
    store.put({broker_key(2): None})
    await metadata.wait_reached(store.revision)
    assert await move(moves, (3, 2)) is None


async def test_a_move_rests_on_the_partition_and_on_the_brokers_that_it_goes_to() -> None:
    """Another broker may have changed the in-sync set, which a move must not bring back."""
    store = FakeMetaStore()
    moves, _ = await cluster_of(store, LED_BY_1)

    def shrink() -> None:
        store.before_txn = lambda: None
        store.put({partition_key("t", 0): pack_partition(replace(LED_BY_1, isr=(1,)))})

    store.before_txn = shrink
    assert await move(moves, (3, 1)) is None
    stored = read_partition("/partitions/t/0", store.values[partition_key("t", 0)])
    assert (stored.isr, stored.replicas) == ((1,), (3, 1, 2))

    store = FakeMetaStore()
    moves, _ = await cluster_of(store, LED_BY_1)

    def go() -> None:
        store.before_txn = lambda: None
        store.put({broker_key(3): None})

    store.before_txn = go
    assert await move(moves, (3, 1)) == E.INVALID_REPLICA_ASSIGNMENT
    assert not read_partition("/partitions/t/0", store.values[partition_key("t", 0)]).is_moving


async def test_more_moves_than_a_transaction_has_operations() -> None:
    store = FakeMetaStore(max_operations=128)
    moves, metadata = await cluster_of(store, LED_BY_1, 130)
    wanted = {TopicPartition("t", index): (3, 1) for index in range(130)}
    outcomes = await moves.move(wanted, may_change_factor=True, timeout_ms=10_000)
    assert outcomes == dict.fromkeys(wanted)
    assert all(each.adding == (3,) for each in metadata.image.topics["t"].partitions)
    assert completions(metadata.image, lambda _: 1, metadata.image.topics.values()) == {}


async def test_moves_to_more_brokers_than_a_transaction_has_operations() -> None:
    """Each broker that a replica goes to is one condition of the transaction."""
    store = FakeMetaStore(max_operations=128)
    for node in range(4, 154):
        store.put({broker_key(node): pack_broker(BrokerImage(node_id=node, host="h", port=1), "d")})
    moves, metadata = await cluster_of(store, LED_BY_1, 50)
    targets = [(4 + index, 54 + index, 104 + index) for index in range(50)]
    wanted = {TopicPartition("t", index): target for index, target in enumerate(targets)}
    outcomes = await moves.move(wanted, may_change_factor=True, timeout_ms=10_000)
    assert outcomes == dict.fromkeys(wanted)
    assert [each.adding for each in metadata.image.topics["t"].partitions] == targets


async def test_a_store_that_is_away_is_an_error_of_each_partition() -> None:
    store = FakeMetaStore()
    moves, _ = await cluster_of(store, LED_BY_1)
    store.is_refused = True
    outcomes = await moves.move({PLACE: (3, 1)}, may_change_factor=True, timeout_ms=1_000)
    assert isinstance(outcomes[PLACE], KafkaError)


def test_a_partition_without_a_leader_waits() -> None:
    leaderless = replace(begun(LED_BY_1, (3, 1)), leader=NO_LEADER, isr=(1,))
    assert complete(leaderless, brokers(2, 3), 1) is None


async def test_a_move_is_not_refused_by_an_image_that_is_older_than_the_request() -> None:
    """A broker that had just registered was no target yet, which clients do not repeat."""
    store = FakeMetaStore()
    moves, _ = await cluster_of(store, LED_BY_1)
    store.put({broker_key(4): pack_broker(BrokerImage(node_id=4, host="h", port=1), "d")})
    assert await move(moves, (1, 4)) is None
    elsewhere = read_partition("/partitions/t/0", store.values[partition_key("t", 0)])
    moves, _ = await cluster_of(store, LED_BY_1)
    store.put({partition_key("t", 0): pack_partition(elsewhere)})
    assert await move(moves, None) is None  # begun at another broker
