"""A batch that waits costs nothing while it does."""

from collections import Counter

import trio
import trio.testing
from trio.testing import MockClock

from odradek.protocol.apis.produce import PRODUCE
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import SILENCE, FakeBroker

TURNS = 50


class Scheduled(trio.abc.Instrument):
    """The number of turns of each task."""

    def __init__(self) -> None:
        self.counts: Counter[trio.lowlevel.Task] = Counter()

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        self.counts[task] += 1


async def test_a_batch_that_is_due_behind_one_without_an_answer_does_not_keep_the_client_busy(
    mock_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer
) -> None:
    """The sender used a whole core until the answer came."""
    async with producer_of(fake_broker, linger_ms=20) as producer:
        fake_broker.next(PRODUCE, SILENCE)
        first = await producer.send("t", b"a", partition=0)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(0.1)
        await trio.testing.wait_all_tasks_blocked()
        assert len(fake_broker.asked(PRODUCE)) == 1
        second = await producer.send("t", b"b", partition=0)
        mock_clock.jump(0.1)
        scheduled = Scheduled()
        trio.lowlevel.add_instrument(scheduled)
        for _ in range(TURNS):
            await trio.lowlevel.checkpoint()
        trio.lowlevel.remove_instrument(scheduled)
        del scheduled.counts[trio.lowlevel.current_task()]
        assert max(scheduled.counts.values(), default=0) < TURNS / 2
        fake_broker.disconnect()
        mock_clock.autojump_threshold = 0
        await first
        await second
    assert fake_broker.stored["t", 0] == [b"a", b"b"]
