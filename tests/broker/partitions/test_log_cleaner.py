"""When the log cleaner looks for logs to compact."""

import trio
from trio.testing import MockClock

from odradek.broker.partitions.upkeep.log_cleaner import CleanerConfig, LogCleaner
from odradek.broker.partitions.upkeep.maintenance import Maintenance


class Looks:
    """No partitions, and the times at which the cleaner went through them."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self) -> list[Maintenance]:
        self.times.append(trio.current_time())
        return []


async def test_a_shorter_backoff_ends_the_pause_of_a_longer_one(autojump_clock: MockClock) -> None:
    looks = Looks()
    cleaner = LogCleaner(looks, CleanerConfig(backoff_ms=2**63 - 1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cleaner.run)
        await trio.sleep(100)
        began = trio.current_time()
        cleaner.configure(CleanerConfig(backoff_ms=10_000))
        await trio.sleep(25)
        nursery.cancel_scope.cancel()
    assert [round(time - began) for time in looks.times] == [10, 20]
