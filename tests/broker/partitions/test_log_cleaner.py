"""When the log cleaner looks for logs to compact."""

from collections.abc import Iterator

import trio
from trio.testing import MockClock

from odradek.broker.partitions.log_cleaner import CleanerConfig, LogCleaner
from odradek.broker.partitions.partition import Partition


class Looks(list[Partition]):
    """No partitions, and the times at which the cleaner went through them."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def __iter__(self) -> Iterator[Partition]:
        self.times.append(trio.current_time())
        return super().__iter__()


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
