"""Followers copy their leader, cut what it does not have, and count only in its epoch."""

import errno

import pytest
import trio
import trio.testing

from odradek.broker.partitions.in_sync_view import InSyncView
from odradek.broker.replication.follower_session import FollowerSession
from odradek.broker.storage.config import LogConfig
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.replication.replicas import Replicas


async def test_a_record_is_acknowledged_when_the_in_sync_replicas_have_it_on_disk() -> None:
    replicas = await Replicas.start()
    end = replicas.append("a")
    await replicas[1].wait_flushed(end)
    assert replicas[1].high_watermark == 0
    await replicas.fetch(2)  # has it now, and says so with its next fetch
    assert replicas[1].high_watermark == 0
    await replicas.fetch(2, 3, rounds=2)
    assert replicas[1].high_watermark == end
    await replicas[1].leader().wait_committed(end)
    await replicas.fetch(2, 3)
    assert {replicas[node].high_watermark for node in (1, 2, 3)} == {end}
    assert replicas.bytes_of(1) == replicas.bytes_of(2) == replicas.bytes_of(3)


async def test_a_follower_that_has_not_flushed_has_nothing() -> None:
    """A power loss of all replicas at once would lose an acknowledged record."""
    replicas = await Replicas.start()
    end = replicas.append("a")
    await replicas[1].wait_flushed(end)
    for follower in (2, 3):
        await replicas.fetch(follower)
    for follower in (2, 3):
        await replicas.restart(follower, power_loss=True)
        assert replicas[follower].log_end_offset == end


async def test_what_waits_fails_when_the_lead_ends() -> None:
    replicas = await Replicas.start()
    end = replicas.append("a")
    failed: list[ErrorCode] = []

    async def wait() -> None:
        try:
            await replicas[1].leader().wait_committed(end)
        except KafkaError as error:
            failed.append(error.code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await replicas.elect(2, isr=(2, 3))
    assert failed == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_a_batch_of_an_earlier_lead_does_not_count_in_a_later_one() -> None:
    """A to B to A: another batch may stand where the first one stood."""
    replicas = await Replicas.start()
    end = replicas.append("lost")
    leader = replicas[1].leader()
    await replicas.elect(2, isr=(2, 3))
    replicas.append("kept")
    await replicas.fetch(1, 3, rounds=3)
    await replicas.elect(1)
    await replicas.fetch(2, 3, rounds=2)
    assert replicas[1].high_watermark >= end
    with pytest.raises(KafkaError) as refused:
        await leader.wait_committed(end)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_an_acknowledged_record_survives_a_restart_of_a_follower_and_its_election() -> None:
    replicas = await Replicas.start()
    end = replicas.append("a")
    await replicas[1].wait_flushed(end)
    await replicas.fetch(2, 3, rounds=2)
    assert replicas[1].high_watermark == end  # acknowledged
    assert replicas[2].high_watermark == 0  # and not known to the follower
    await replicas.restart(2)
    await replicas.fetch(2)
    assert replicas[2].log_end_offset == end
    await replicas.elect(2, isr=(2, 3))
    assert replicas[2].log_end_offset == end


async def test_logs_that_parted_below_the_leaders_end_keep_what_they_share() -> None:
    """KIP-101: a follower that cut its log at its high watermark lost acknowledged records."""
    replicas = await Replicas.start()
    end = replicas.append("acknowledged")
    await replicas[1].wait_flushed(end)
    await replicas.fetch(2, 3, rounds=2)
    assert replicas[1].high_watermark == end
    assert replicas[2].high_watermark == 0  # the follower does not know it yet
    await replicas.elect(2, isr=(2,), absent=(1, 3))
    replicas.append("only 2")
    await replicas.elect(1, isr=(1, 3), absent=(2,))
    await replicas.hear(replicas.replicas[2])
    replicas.append("only 1")
    await replicas.take(2, await replicas.ask(2))
    assert replicas[2].log_end_offset == end
    await replicas.fetch(2, rounds=2)
    assert replicas.bytes_of(1) == replicas.bytes_of(2)


async def test_logs_that_parted_in_several_epochs_come_together() -> None:
    """KIP-279: one answer of one epoch does not show where they parted."""
    replicas = await Replicas.start()
    replicas.append("common")
    await replicas.fetch(2, 3, rounds=2)
    await replicas.elect(1, isr=(1,), absent=(2, 3))
    replicas.append("only 1, epoch 2")
    await replicas.elect(2, isr=(2,), absent=(1, 3))
    replicas.append("only 2, epoch 3")
    replicas.append("only 2, epoch 3")
    await replicas.elect(1, isr=(1,), absent=(2, 3))
    replicas.append("only 1, epoch 4")
    await replicas.hear(replicas.replicas[2])
    await replicas.hear(replicas.replicas[3])
    await replicas.fetch(2, 3, rounds=6)
    assert replicas.bytes_of(1) == replicas.bytes_of(2) == replicas.bytes_of(3)
    assert replicas[2].log.epochs.entries == replicas[1].log.epochs.entries


async def test_a_fetch_of_another_epoch_counts_as_nothing() -> None:
    """KIP-320: it may be that of a follower which does not know yet that it must cut its log."""
    replicas = await Replicas.start()
    replicas.append("a")
    await replicas.fetch(2, rounds=2)
    before = replicas[1].leader()
    await replicas.elect(1, absent=(2,))
    assert (await replicas.ask(2)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    leader = replicas[1].leader()
    assert leader is not before
    assert leader.view.followers[2].next_offset == -1


async def test_a_position_of_an_earlier_epoch_does_not_move_the_high_watermark() -> None:
    replicas = await Replicas.start()
    await replicas.fetch(2, 3)
    end = replicas.append("a")
    await replicas[1].wait_flushed(end)
    await replicas.fetch(2, rounds=2)
    await replicas.elect(1)
    await replicas.fetch(3, rounds=2)
    assert replicas[1].high_watermark == 0
    await replicas.fetch(2)
    assert replicas[1].high_watermark == end


async def test_a_fetch_that_its_broker_sent_before_it_restarted_counts_as_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """KAFKA-15221: what it says may have been lost with the power."""
    replicas = await Replicas.start()
    end = replicas.append("a")
    await replicas[1].wait_flushed(end)
    await replicas.fetch(2, 3)
    stale = replicas.replicas[2].epoch
    replicas.replicas[2].epoch += 1
    answer = await replicas.ask(2, broker_epoch=stale)
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert f"a fetch of broker 2 with epoch {stale} was refused" in caplog.text
    assert replicas[1].leader().view.followers[2].next_offset == 0


async def test_an_answer_that_shows_where_logs_part_counts_as_nothing() -> None:
    """KAFKA-14704."""
    replicas = await Replicas.start()
    await replicas.elect(1, isr=(1,), absent=(2, 3))
    replicas.append("only 1")
    await replicas.elect(2, isr=(2, 3), absent=(1,))
    await replicas.hear(replicas.replicas[1])
    replicas.append("only 2")
    replicas.append("only 2")
    await replicas[2].wait_flushed(2)
    assert (await replicas.ask(1)).diverging_epoch.end_offset == 0
    assert replicas[2].leader().view.followers[1].next_offset == -1
    assert replicas.considered == []


async def test_an_answer_that_comes_after_the_role_has_changed_is_dropped() -> None:
    """KAFKA-13207: it would cut the log of the new leader."""
    replicas = await Replicas.start()
    replicas.append("a")
    await replicas.fetch(2, 3, rounds=2)
    replicas.append("b")
    late = await replicas.ask(2)
    copy = replicas.replicas[2].copy
    assert copy is not None
    await replicas.elect(2, isr=(2, 3), absent=(1,))
    assert not await copy.take(late, 0)
    assert replicas[2].log_end_offset == 1


async def test_a_follower_below_the_leaders_log_begins_anew() -> None:
    """KAFKA-20961: it was out of range for ever, as nobody wrote to the partition."""
    config = LogConfig(min_insync_replicas=1, segment_bytes=16_384)
    replicas = await Replicas.start(config)
    await replicas.elect(1, isr=(1,))
    for number in range(5):
        replicas.append("x" * 8_000, str(number))
    await replicas[1].wait_flushed(replicas[1].log_end_offset)
    start = replicas[1].log.active.base_offset
    assert start > 0
    await replicas[1].maintenance.delete_before(start)
    rounds = 0
    while replicas[2].log_start_offset < start:
        await replicas.fetch(2)
        rounds += 1
        assert rounds < 4
    assert replicas[2].high_watermark >= start  # seen: 0, for as long as nobody wrote
    await replicas.fetch(2, rounds=4)
    assert replicas[2].log_start_offset == start
    assert replicas[2].log_end_offset == replicas[1].log_end_offset


async def test_a_broker_without_a_replica_may_not_fetch() -> None:
    replicas = await Replicas.start()
    del replicas[1].leader().view.followers[3]
    assert (await replicas.ask(3)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_batch_that_the_network_has_damaged_is_not_written() -> None:
    replicas = await Replicas.start()
    replicas.append("a")
    answer = await replicas.ask(2)
    damaged = bytearray(answer.records or b"")
    damaged[-1] ^= 1
    object.__setattr__(answer, "records", memoryview(damaged))
    await replicas.take(2, answer)
    assert replicas[2].log_end_offset == 0
    await replicas.fetch(2)
    assert replicas[2].log_end_offset == 1


async def test_a_follower_begins_anew_inside_the_batch_in_which_the_leaders_log_begins() -> None:
    """DeleteRecords left the start there, and the follower refused that batch for ever."""
    replicas = await Replicas.start(LogConfig(min_insync_replicas=1))
    await replicas.elect(1, isr=(1,))
    replicas.append("a", "b", "c", "d")
    replicas.append("e")
    await replicas[1].wait_flushed(5)
    await replicas[1].maintenance.delete_before(2)
    await replicas.fetch(2, rounds=3)
    assert (replicas[2].log_start_offset, replicas[2].log_end_offset) == (2, 5)
    await replicas.restart(2, power_loss=True)
    assert (replicas[2].log_start_offset, replicas[2].log_end_offset) == (2, 5)


async def test_what_the_leader_has_deleted_is_deleted_at_its_followers() -> None:
    """Deleted records were there again when a follower was elected."""
    replicas = await Replicas.start()
    for value in "abc":
        replicas.append(value)
    await replicas.fetch(2, rounds=2)
    await replicas.fetch(3, rounds=2)
    await replicas[1].maintenance.delete_before(2)
    await replicas.fetch(2, rounds=2)
    assert replicas[2].log_start_offset == 2
    await replicas.elect(2)
    assert replicas[2].log_start_offset == 2


async def test_a_follower_without_room_for_its_new_start_goes_on_and_saves_it_later() -> None:
    """The OSError of its full disk ended the broker, with all other replicas on it."""
    replicas = await Replicas.start()
    for value in "abc":
        replicas.append(value)
    await replicas.fetch(2, rounds=2)
    await replicas.fetch(3, rounds=2)
    await replicas[1].maintenance.delete_before(2)
    disk = replicas.replicas[2].machine.disk
    disk.fail("append", errno.ENOSPC, path_end="checkpoint.tmp")
    await replicas.fetch(2)
    assert reported_start(replicas, 2) == 0  # the deletion is not answered yet
    replicas.append("d")
    await replicas.fetch(2)
    assert reported_start(replicas, 2) == 2
    await replicas.restart(2, power_loss=True)
    assert (replicas[2].log_start_offset, replicas[2].log_end_offset) == (2, 4)


def reported_start(replicas: Replicas, node_id: int) -> int:
    """Return the log start that the next fetch of a follower has."""
    copy = replicas.replicas[node_id].copy
    assert copy is not None
    copy.paused_until = 0.0
    session = FollowerSession(node_id, broker_epoch=1)
    session.add(copy)
    request = session.request(trio.current_time(), max_wait_ms=0, max_bytes=1)
    assert request is not None
    return request.topics[0].partitions[0].log_start_offset


async def test_a_leader_that_is_cut_off_cannot_prove_that_it_leads() -> None:
    """Seen with Kafka: a processor got offsets that were older than those it had committed."""
    replicas = await Replicas.start()
    proofs: list[str] = []
    leader = replicas[1].leader()

    async def prove() -> None:
        try:
            await leader.prove_lead()
            proofs.append("leads")
        except KafkaError as error:
            proofs.append(error.code.name)

    async with trio.open_nursery() as nursery:
        await replicas.fetch(2, 3)  # before the request: it proves nothing
        nursery.start_soon(prove)
        await trio.testing.wait_all_tasks_blocked()
        assert proofs == []
        await replicas.fetch(2)
        await trio.testing.wait_all_tasks_blocked()
        assert proofs == ["leads"]
        await replicas.elect(2, isr=(2, 3), absent=(1,))  # and nobody fetches from 1 any more
        nursery.start_soon(prove)
    assert proofs == ["leads", "NOT_LEADER_OR_FOLLOWER"]


async def test_a_partition_with_one_replica_needs_no_proof() -> None:
    replicas = await Replicas.start()
    replicas[1].begin_lead(InSyncView.alone(1, 9))
    await replicas[1].leader().prove_lead()
