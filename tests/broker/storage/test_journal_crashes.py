"""The power goes off before every operation of the disk, with `log.flush=journal`.

The stories are those of `test_crashes.py`. The journal must vouch for what was acknowledged
although hardly any fsync of the log itself has ended.
"""

from dataclasses import dataclass, replace
from random import Random

import pytest

from odradek.broker.partitions.in_sync_view import InSyncView
from odradek.broker.storage.config import FlushPolicy, LogConfig
from odradek.protocol.record import decode_batch
from tests.broker.storage import test_compaction_crashes as compaction
from tests.broker.storage.keyed import CONFIG as KEYED
from tests.broker.storage.samples import TOPIC, Machine, batch, read_all
from tests.broker.storage.stories import KEEPING, Story, at_every, crash, crash_again, told
from tests.broker.storage.test_crashes import CONFIG, ROLLING, Life, check, goes_on, workload

JOURNALED = replace(CONFIG, flush=FlushPolicy.JOURNAL)
JOURNALED_ROLLING = replace(ROLLING, flush=FlushPolicy.JOURNAL)
both = pytest.mark.parametrize(
    "config", [JOURNALED, JOURNALED_ROLLING], ids=["few segments", "many segments"]
)


async def count_operations(config: LogConfig) -> int:
    story = Life(Machine(config=config))
    await workload(story)
    await check(story, story.machine.partitions.get_replica(TOPIC, 0))
    return story.machine.disk.operations


@pytest.mark.slow
@both
@pytest.mark.parametrize("keeping", KEEPING)
@at_every
async def test_a_crash_at_every_operation_loses_and_invents_nothing(
    keeping: str, config: LogConfig, every: int
) -> None:
    for operation in range(KEEPING.index(keeping) % every, await count_operations(config), every):
        story = await told(Life(Machine(config=config)), workload, until=operation)
        crash(story.machine.disk, keeping, operation)
        partition = await story.machine.start()
        await check(story, partition)
        await goes_on(story, partition)


@pytest.mark.slow
@both
async def test_what_recovery_shows_to_readers_survives_the_next_crash(config: LogConfig) -> None:
    """The process dies and leaves its writes in the page cache; then the power goes off."""
    for operation in range(await count_operations(config)):
        story = await told(Life(Machine(config=config)), workload, until=operation)
        partition = await story.machine.restart_after_kill()
        story.acknowledged_offset = partition.high_watermark
        await check(story, await story.machine.restart_after_power_loss())


@pytest.mark.slow
async def test_crashes_while_recovering_lose_and_invent_nothing() -> None:
    random = Random(3)
    for first_crash in range(7, await count_operations(JOURNALED), 9):
        await crash_again(
            lambda: Life(Machine(config=JOURNALED)),
            workload,
            check,
            first_crash=first_crash,
            operations=range(80),
            random=random,
        )


@pytest.mark.slow
@pytest.mark.parametrize("keeping", KEEPING)
@at_every
async def test_a_crash_at_every_operation_of_a_compaction(keeping: str, every: int) -> None:
    """Records of the journal may be of segments that a compacted one has replaced."""
    config = replace(KEYED, flush=FlushPolicy.JOURNAL)
    for operation in (await compaction.operations(config))[KEEPING.index(keeping) % every :: every]:
        life = compaction.Life(Machine(config=config))
        story = await told(life, compaction.workload, until=operation)
        crash(story.machine.disk, keeping, operation)
        partition = await story.machine.start()
        await compaction.check(story, partition)
        await compaction.goes_on(story, partition)


@dataclass
class CutLife(Story):
    """A lead that appended what no other replica had, and another lead after the cut."""

    may_be_cut: bool = False
    must_be_cut: bool = False


async def lead_and_be_cut(story: CutLife) -> None:
    partition = await story.machine.start()
    partition.leader().append_from_client(batch("0"))
    await partition.leader().wait_committed()
    await partition.checkpoint()
    for value in "1234":
        partition.leader().append_from_client(batch(value))
        await partition.leader().wait_committed()
        story.acknowledged_offset = partition.log_end_offset
    partition.end_lead(1)
    story.acknowledged_offset, story.may_be_cut = 2, True
    await partition.maintenance.truncate_to(2)
    story.must_be_cut = True
    partition.begin_lead(InSyncView.alone(-1, 2))
    for value in "abc":
        partition.leader().append_from_client(batch(value))
        await partition.leader().wait_committed()
        story.acknowledged_offset = partition.log_end_offset


@pytest.mark.parametrize("keeping", KEEPING)
async def test_a_crash_at_every_operation_around_a_cut(keeping: str) -> None:
    whole = CutLife(Machine(config=JOURNALED))
    await lead_and_be_cut(whole)
    for operation in range(whole.machine.disk.operations):
        story = await told(CutLife(Machine(config=JOURNALED)), lead_and_be_cut, until=operation)
        crash(story.machine.disk, keeping, operation)
        partition = await story.machine.start(leader_epoch=3)
        found = [decode_batch(data)[0].value for _, data in await read_all(partition)]
        before, after = [b"%d" % n for n in range(5)], [b"0", b"1", b"a", b"b", b"c"]
        is_before, is_after = found == before[: len(found)], found == after[: len(found)]
        assert is_after if story.must_be_cut else is_before or (is_after and story.may_be_cut)
        assert len(found) >= story.acknowledged_offset, operation
