"""Who leads a partition: a function of the image alone."""

from uuid import UUID

import pytest

from odradek.broker.cluster.election import (
    elect,
    elections,
    preferred,
    unclean,
    with_isr,
    without,
)
from odradek.broker.cluster.image import (
    NO_LEADER,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from odradek.broker.cluster.store import (
    OWN_GUARDS,
    in_steps,
    leader_of,
    partition_key,
    write_of_partitions,
)
from odradek.broker.values.topic_partition import TopicPartition


def broker(node_id: int, epoch: int = 1, *, is_leaving: bool = False) -> BrokerImage:
    return BrokerImage(node_id=node_id, host="h", port=1, epoch=epoch, is_leaving=is_leaving)


def partition(
    *, leader: int = 1, isr: tuple[int, ...] = (1, 2, 3), elr: tuple[int, ...] = (), epoch: int = 10
) -> PartitionImage:
    return PartitionImage(
        leader=leader, leader_epoch=7, replicas=(1, 2, 3), isr=isr, elr=elr, epoch=epoch
    )


def elected(old: PartitionImage, *brokers: BrokerImage, min_isr: int = 2) -> PartitionImage | None:
    return elect(old, {each.node_id: each for each in brokers}, min_isr)


def test_a_live_leader_stays() -> None:
    assert elected(partition(), broker(1)) is None


def test_another_member_of_the_in_sync_set_follows_a_dead_leader_in_a_new_epoch() -> None:
    new = elected(partition(isr=(1, 3)), broker(2), broker(3))
    assert new is not None
    assert (new.leader, new.leader_epoch, new.isr) == (3, 8, (3,))
    assert new.elr == (1,)  # it had everything when the set became too small


def test_a_leader_that_has_restarted_leads_in_an_epoch_of_its_own() -> None:
    """KAFKA-10527: what its earlier run did in the old epoch must not count."""
    new = elected(partition(isr=(1,), epoch=10), broker(1, epoch=11))
    assert new is not None
    assert (new.leader, new.leader_epoch) == (1, 8)


def test_without_a_candidate_the_partition_waits_for_one() -> None:
    waiting = elected(partition(isr=(1,)), broker(2), broker(3))
    assert waiting is not None
    assert (waiting.leader, waiting.isr) == (NO_LEADER, (1,))
    assert elected(waiting, broker(2), broker(3)) is None
    back = elected(waiting, broker(1, epoch=12), broker(2))
    assert back is not None
    assert back.leader == 1


def test_an_eligible_replica_leads_when_the_in_sync_set_is_gone() -> None:
    """KIP-966."""
    new = elected(partition(isr=(1,), elr=(3,)), broker(2), broker(3))
    assert new is not None
    assert (new.leader, new.isr, new.elr) == (3, (3,), (1,))


def test_a_broker_that_stops_hands_over_and_leads_nothing_new() -> None:
    new = elected(partition(), broker(1, is_leaving=True), broker(2, is_leaving=True), broker(3))
    assert new is not None
    assert new.leader == 3
    alone = partition(isr=(1,))
    assert elected(alone, broker(1, is_leaving=True), broker(2)) is None


def test_replicas_that_leave_a_set_that_becomes_too_small_stay_eligible() -> None:
    small = with_isr(partition(), (1,), 2)
    assert small.elr == (2, 3)
    assert with_isr(small, (1, 2), 2).elr == ()


def image(*partitions: PartitionImage, brokers: tuple[BrokerImage, ...]) -> ClusterImage:
    topic = TopicImage(name="t", topic_id=UUID(int=1), configs={}, partitions=partitions)
    return ClusterImage(cluster_id="c", brokers=brokers).with_topics([topic])


def test_all_partitions_of_a_dead_broker_get_leaders_and_no_others() -> None:
    now = image(partition(), partition(leader=2), brokers=(broker(2), broker(3)))
    found = elections(now, lambda _: 2, now.topics.values())
    assert list(found) == [("t", 0)]


def test_the_first_replica_gets_its_place_back_when_it_is_in_sync() -> None:
    def found(partition: PartitionImage, *brokers: BrokerImage) -> list[tuple[str, int]]:
        now = image(partition, brokers=brokers)
        return list(preferred(now, now.topics.values()))

    assert found(partition(leader=2), broker(1), broker(2)) == [("t", 0)]
    assert found(partition(leader=2, isr=(2,)), broker(1), broker(2)) == []
    assert found(partition(leader=2), broker(1, is_leaving=True), broker(2)) == []


def test_a_replica_that_may_lack_records_is_in_no_set() -> None:
    others = {2: broker(2), 3: broker(3)}
    left = without(partition(leader=2, isr=(2, 1), elr=(3,)), 1, others)
    assert left is not None
    assert (left.leader, left.leader_epoch, left.isr, left.elr) == (2, 7, (2,), (3,))
    eligible = without(partition(leader=2, isr=(2,), elr=(1, 3)), 1, others)
    assert eligible is not None
    assert (eligible.isr, eligible.elr) == ((2,), (3,))
    assert without(partition(leader=2, isr=(2, 3)), 1, others) is None


def test_a_leader_that_has_restarted_does_not_lead_in_its_old_epoch_after_that() -> None:
    """The write makes the partition newer than the broker, as an election does."""
    restarted = {2: broker(2, epoch=11)}
    left = without(partition(leader=2, isr=(1, 2), epoch=10), 1, restarted)
    assert left is not None
    assert (left.leader, left.leader_epoch, left.isr) == (NO_LEADER, 8, (2,))
    new = elected(left, *restarted.values())
    assert new is not None
    assert (new.leader, new.leader_epoch) == (2, 9)


def test_the_only_replica_of_a_partition_stays_in_its_set() -> None:
    alone = PartitionImage(leader=1, leader_epoch=7, replicas=(1,), isr=(1,), epoch=10)
    assert without(alone, 1, {}) is None


def test_when_no_replica_is_known_to_be_whole_the_last_leader_leads_again() -> None:
    """KIP-966: as Kafka does."""
    gone = elected(partition(leader=2, isr=(2,)), broker(1), broker(3))
    assert gone is not None
    assert (gone.leader, gone.last_leader) == (NO_LEADER, 2)
    empty = without(gone, 2, {1: broker(1), 3: broker(3)})
    assert empty is not None
    assert (empty.isr, empty.last_leader) == ((), 2)
    assert elected(empty, broker(1), broker(3)) is None
    back = elected(empty, broker(1), broker(2, epoch=12), broker(3))
    assert back is not None
    assert (back.leader, back.isr, back.elr, back.last_leader) == (2, (2,), (), NO_LEADER)


def test_a_whole_replica_goes_before_the_last_leader() -> None:
    waiting = PartitionImage(
        leader=NO_LEADER, leader_epoch=7, replicas=(1, 2, 3), isr=(), elr=(3,), last_leader=2
    )
    new = elected(waiting, broker(2), broker(3))
    assert new is not None
    assert (new.leader, new.isr) == (3, (3,))
    assert elected(waiting, broker(2)) is None


def test_an_unclean_election_leaves_no_other_replica_in_sync_or_eligible() -> None:
    """The others may have records that its log lacks. A clean election of one would diverge."""
    gone = partition(leader=NO_LEADER, isr=(3,), elr=(2,))
    brokers = {2: broker(2), 1: broker(1)}
    new = unclean(gone, brokers)
    assert new is not None
    assert (new.leader, new.leader_epoch, new.isr, new.elr) == (1, 8, (1,), ())
    assert (asked := unclean(gone, brokers, 2)) is not None
    assert asked.leader == 2


def test_an_unclean_election_needs_a_replica_that_is_there_and_stays() -> None:
    gone = partition(leader=NO_LEADER, isr=(3,))
    assert unclean(gone, {1: broker(1), 4: broker(4)}, 3) is None
    assert unclean(gone, {1: broker(1, is_leaving=True), 4: broker(4)}) is None


@pytest.mark.parametrize("brokers", [3, 30, 200])
def test_an_election_of_many_leaders_fits_into_the_transactions_of_the_store(brokers: int) -> None:
    """With 30 brokers the conditions on new leaders were one too many, and the controller ended."""
    image = ClusterImage(
        cluster_id="c",
        brokers=tuple(BrokerImage(node_id=node, host="h", port=1) for node in range(brokers)),
    )
    changed = {
        TopicPartition("t", index): PartitionImage(
            leader=index % brokers,
            leader_epoch=1,
            replicas=(index % brokers,),
            isr=(index % brokers,),
        )
        for index in range(1000)
    }
    steps = list(in_steps(changed, 128, leader_of))
    assert {where: each for step in steps for where, each in step.items()} == changed
    for step in steps:
        compares, puts = write_of_partitions(image, step)
        assert len(compares) + OWN_GUARDS <= 128
        assert list(puts) == [partition_key(*where) for where in step]
    assert list(in_steps(changed, None, leader_of)) == [changed]
    assert list(in_steps({}, 128, leader_of)) == []
