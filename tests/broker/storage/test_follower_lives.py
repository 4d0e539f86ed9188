"""Random lives of a follower's log: it copies, is cut, begins anew, and crashes at any operation.

Whatever happened, the opened log is what its leader sent, up to an offset that is at least the
flushed one, and has the state of a log that got exactly these batches.
"""

from dataclasses import dataclass, field
from random import Random

import pytest

from odradek.broker.storage.log import Log
from odradek.broker.storage.truncation import start_anew, truncate
from odradek.protocol.batch import read_header
from tests.broker.storage.replicas import Leader, contents, open_log
from tests.broker.storage.test_truncation import below, check_cut
from tests.fakes.clock import START_MS
from tests.fakes.disk import FakeDisk, PowerOff

pytestmark = pytest.mark.slow


@dataclass
class Life:
    """A follower, and what its log may have."""

    random: Random
    log: Log
    disk: FakeDisk
    leader: Leader
    batches: list[bytes] = field(default_factory=list)
    """The batches of the log, flushed or not."""
    before: list[bytes] | None = None
    """The batches before the cut that is under way."""
    flushed_offset: int = 0

    async def step(self) -> None:
        what = self.random.choices(
            ("copy", "sync", "checkpoint", "lead", "cut", "high watermark"), (8, 4, 2, 3, 2, 1)
        )[0]
        if what == "copy":
            await self.copy()
        elif what == "sync":
            await self.log.sync()
            self.flushed_offset = self.log.flushed_offset
        elif what == "checkpoint":
            await self.log.sync()
            self.flushed_offset = self.log.flushed_offset
            await self.log.saver.save(self.log.to_save())
        elif what == "lead":
            for _ in range(self.random.randrange(12)):
                self.leader.step(self.random)
        elif what == "cut":
            await self.cut()
        else:
            self.log.state.high_watermark = self.log.flushed_offset

    async def copy(self) -> None:
        end = self.log.log_end_offset
        batches = [
            data for data in await contents(self.leader.log) if read_header(data).base_offset >= end
        ][: self.random.randrange(1, 9)]
        # Noted first: a power failure in the middle of the append leaves any part of it.
        self.batches += batches
        self.log.append_replicated(b"".join(batches), now_ms=START_MS)

    async def cut(self) -> None:
        """Cut both logs, so that the leader's goes on otherwise; now and then cut them at 0."""
        offset = self.random.randrange(self.log.log_end_offset + 1)
        kept = below(self.batches, offset)
        end = read_header(kept[-1]).next_offset if kept else 0
        if not self.random.randrange(6):
            kept, end = [], 0
        self.before, self.batches = self.batches, kept
        self.flushed_offset = min(self.flushed_offset, end)
        if kept or not self.random.randrange(2):
            await truncate(self.log, offset if kept else 0, now_ms=START_MS)
        else:
            await start_anew(self.log, 0)
        self.before = None
        self.flushed_offset = self.log.flushed_offset
        self.leader = await new_leader(kept, self.leader.epoch + 1)

    async def crash(self) -> None:
        """End the process or the power, and open the log again."""
        is_kill = self.random.randrange(2) == 0
        if is_kill:
            self.disk.kill()
        else:
            self.disk.crash(self.random)
        while True:
            if self.random.randrange(3) == 0:
                self.disk.power_off_at(self.disk.operations + self.random.randrange(25))
            try:
                self.log = await open_log(self.disk, same_boot=is_kill)
                break
            except PowerOff:
                is_kill = False
                self.disk.crash(self.random)
        found = await contents(self.log)
        assert found in (
            self.batches[: len(found)],
            self.before[: len(found)] if self.before is not None else None,
        )
        assert self.log.log_end_offset >= self.flushed_offset
        await check_cut(self.log, found, exactly=False)
        self.batches, self.before = found, None
        self.flushed_offset = self.log.flushed_offset
        self.leader = await new_leader(found, self.leader.epoch + 1)


async def new_leader(batches: list[bytes], epoch: int) -> Leader:
    """Return another leader whose log has these batches."""
    log = await open_log(FakeDisk())
    log.append_replicated(b"".join(batches), now_ms=START_MS)
    leader = Leader(log, epoch=epoch)
    for entry in log.producers.entries.values():
        leader.epochs[entry.producer_id] = entry.epoch
        leader.sequences[entry.producer_id] = entry.last_sequence + 1
    return leader


@pytest.mark.parametrize("seed", range(100))
async def test_a_follower_has_what_it_flushed_and_nothing_that_was_cut(seed: int) -> None:
    random, disk = Random(seed), FakeDisk()
    life = Life(random, await open_log(disk), disk, await new_leader([], 0))
    for _ in range(random.randrange(2, 7)):
        disk.power_off_at(disk.operations + random.randrange(5, 150))
        try:
            for _ in range(30):
                await life.step()
        except PowerOff:
            pass
        await life.crash()
