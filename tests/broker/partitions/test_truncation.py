"""The log of a partition is cut while it is flushed, compacted and waited for."""

import errno

import pytest
import trio
import trio.testing

from odradek.broker.partitions.upkeep import maintenance
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.log import Log
from odradek.broker.storage.truncation import truncate
from odradek.protocol.batch import read_header, set_base_offset
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.partitions.running import code_of, running
from tests.broker.storage.keyed import CONFIG, KeyedClient, consume, newest
from tests.broker.storage.samples import Machine, batch


async def test_a_cut_waits_for_the_fsync_that_runs_and_no_other_begins_meanwhile() -> None:
    """An fsync that ended after the cut noted more as flushed than the log had."""
    machine = Machine()
    async with running(machine) as partition:
        partition.leader().append_from_client(batch("kept"))
        await partition.flush()
        await trio.testing.wait_all_tasks_blocked()  # the first checkpoint is written
        gate = machine.disk.fsync_gate = trio.Event()
        partition.leader().append_from_client(batch("cut off"))
        await trio.testing.wait_all_tasks_blocked()
        assert partition.flusher.is_running
        partition.end_lead(1)
        machine.disk.fsync_gate = None  # for every fsync but the one that runs
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partition.maintenance.truncate_to, 1)
            await trio.testing.wait_all_tasks_blocked()
            assert partition.log_end_offset == 2
            gate.set()
        assert partition.log.flushed_offset == partition.log_end_offset == 1
        with pytest.raises(KafkaError) as caught:
            await partition.flusher.flush(2)  # it waited for ever
        assert code_of(caught) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition.log.append_replicated(_second(), now_ms=machine.clock.wall_ms())
        partition.maintenance.on_appended()
        await partition.wait_flushed(2)
        assert partition.log.flushed_offset == 2


async def test_a_log_is_cut_although_its_checkpoint_ends_in_a_deleted_segment() -> None:
    """Retention had found no room for another checkpoint. The cut ended the broker."""
    machine = Machine(config=LogConfig(segment_bytes=1_000))
    partition = await machine.start()
    partition.leader().append_from_client(batch("saved"))
    await partition.leader().wait_committed()
    await partition.checkpoint()
    for _ in range(8):
        partition.leader().append_from_client(batch("x" * 300))
    await partition.leader().wait_committed()
    start = partition.log.segments[1].base_offset
    machine.disk.fail("append", errno.ENOSPC, path_end="checkpoint.tmp")
    with pytest.raises(OSError, match="No space"):
        await partition.maintenance.delete_before(start)
    partition.end_lead(1)
    await partition.maintenance.truncate_to(8)
    assert (partition.log_start_offset, partition.log_end_offset) == (start, 8)
    partition = await machine.restart_after_power_loss()
    assert (partition.log_start_offset, partition.log_end_offset) == (start, 8)


def _second() -> memoryview:
    made = batch("the leader's")
    set_base_offset(made, 1, 2)
    return made


@pytest.mark.parametrize("turns", range(0, 120, 3))
async def test_a_pass_of_compaction_gives_up_when_the_log_is_cut(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dropped a value because of a newer one that was cut off: both were lost."""
    machine = Machine(config=CONFIG)
    was_replaced = False  # the first segment, before the log was cut: then its value may be gone

    async def noting(log: Log, offset: int, *, now_ms: int) -> None:
        nonlocal was_replaced
        was_replaced = log.segments[0] is not first
        await truncate(log, offset, now_ms=now_ms)

    monkeypatch.setattr(maintenance, "truncate", noting)
    async with running(machine) as partition:
        client = KeyedClient(partition)
        client.send(("a", "first"), ("once", "first"))
        for number in range(40):
            client.send(("a", f"{number}"), ("b", f"{number}"))
        client.send(("once", "again"))
        await partition.checkpoint()
        partition.log.roll()
        plan = partition.maintenance.plan()
        assert plan is not None
        cut = plan.segments[3].base_offset + 2
        first = partition.log.segments[0]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partition.maintenance.compact, plan)
            for _ in range(turns):
                await trio.lowlevel.checkpoint()
            await partition.maintenance.truncate_to(cut)
            kept = newest(await consume(partition))
    assert [kept[key][0] for key in ("a", "b")] == [cut - 2, cut - 1]
    assert "once" in kept or was_replaced
    assert turns or not was_replaced
    for _ in range(2):
        assert partition.log_end_offset == cut
        assert partition.log.state.clean_offset <= cut
        assert newest(await consume(partition)) == kept
        names = machine.disk.listdir(partition.log.directory)
        assert not [name for name in names if name.endswith(".cleaned")]
        machine.disk.crash()
        partition = await machine.start()


@pytest.mark.parametrize("crashes", [False, True])
async def test_a_log_may_start_inside_the_first_batch_that_the_leader_sends(crashes: bool) -> None:
    """DeleteRecords left the start of the leader's log inside a batch: no follower could begin."""
    machine = Machine()
    async with running(machine) as partition:
        partition.leader().append_from_client(batch("old"))
        await partition.flush()
        kept_up = partition.maintenance
        await kept_up.start_anew_at(23)
        assert (partition.log_start_offset, partition.log_end_offset) == (23, 23)
        whole, following = batch(*"abcdef"), batch("g")
        set_base_offset(whole, 20, 3)
        set_base_offset(following, 26, 4)
        sent = bytes(whole) + bytes(following)
        with pytest.raises(KafkaError):
            partition.log.append_replicated(sent, now_ms=machine.clock.wall_ms())
        await kept_up.append_around_start(sent)
        for _ in range(2):
            assert (partition.log_start_offset, partition.log_end_offset) == (23, 27)
            data, _ = await partition.log.reader.read(23, 1000, to_offset=27, min_one=True)
            assert read_header(data).base_offset == 20
            assert [partition.log.epochs.at(offset) for offset in (23, 25, 26)] == [3, 3, 4]
            if crashes:
                await partition.log.sync()
                machine.disk.crash()
                partition = await machine.start()
            else:
                partition = await machine.restart()


async def test_a_cut_that_finds_damage_takes_the_partition_offline() -> None:
    machine = Machine()
    partition = await machine.start()
    for _ in range(3):
        partition.leader().append_from_client(batch("x"))
    await partition.flush()
    machine.disk.damage(partition.log.active.path(), 70)
    with pytest.raises(KafkaError) as caught:
        await partition.maintenance.truncate_to(2)
    assert code_of(caught) is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.log.is_damaged
    assert partition.log_end_offset == 3


async def test_a_cut_on_a_full_disk_is_refused_and_the_partition_goes_on() -> None:
    machine = Machine()
    partition = await machine.start()
    for _ in range(3):
        partition.leader().append_from_client(batch("x"))
    await partition.flush()
    machine.disk.capacity_bytes = machine.disk.used_bytes
    with pytest.raises(KafkaError) as caught:
        await partition.maintenance.truncate_to(2)
    assert code_of(caught) is ErrorCode.KAFKA_STORAGE_ERROR
    machine.disk.capacity_bytes = None
    partition.leader().append_from_client(batch("x"))
    await partition.maintenance.truncate_to(2)
    assert partition.log_end_offset == 2
