"""What the lane holds of its clients, for how long, and where it takes no more."""

import gc
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
import trio
import trio.testing

from odradek.broker.server.lane import Taken
from odradek.broker.server.server import Server
from tests.broker.server.lane_clients import (
    hold_turns,
    producers_of,
    response,
)
from tests.broker.server.produced import Producer, broker
from tests.fakes.net import split_frames


# plant the lane takes more requests of a connection than may wait for their answers
async def test_the_lane_takes_no_request_while_five_answers_are_pending(
    taken: Counter[bool],
) -> None:
    async with broker() as found:
        (producer,) = await producers_of(found, 1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        taken.clear()
        gate = found.disk.fsync_gate = trio.Event()
        for number in range(9):
            batch = producer.batch("plain", 0, b"x")
            producer.client.send(found.frame([("plain", 0, batch)], correlation_id=number))
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert taken == {True: 5}
        assert producer.client.unread_bytes > 0, "the broker reads no more than it must"
        gate.set()
        frames = (await producer.client.frames(1 + 9))[1:]
        assert taken[True] == 9, "the others are taken once there is room"
        assert [int.from_bytes(frame[:4], "big") for frame in frames] == list(range(9))
        assert [response(frame).base_offset for frame in frames] == list(range(1, 10))


async def test_what_has_arrived_in_parts_is_counted_until_it_is_appended(
    taken: Counter[bool], servers: list[Server]
) -> None:
    async with broker() as found:
        (producer,) = await producers_of(found, 1)
        before = [server.held_bytes for server in servers]
        frame = found.frame([("plain", 0, producer.batch("plain", 0, b"x" * 90_000))])
        producer.client.send(frame[:70_000])
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert sum(server.held_bytes for server in servers) >= sum(before) + 70_000
        gate = found.disk.fsync_gate = trio.Event()
        producer.client.send(frame[70_000:])
        await trio.testing.wait_all_tasks_blocked(0.01)
        held_bytes = sum(server.held_bytes for server in servers)
        gate.set()
        assert taken[True] == 1
        assert sum(before) < held_bytes < sum(before) + 10_000
        await producer.client.frames(2)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert [server.held_bytes for server in servers] == before


@pytest.mark.slow
async def test_the_requests_of_clients_that_have_gone_are_not_kept(taken: Counter[bool]) -> None:
    async with broker() as found:
        producers = await producers_of(found, 5)
        await trio.testing.wait_all_tasks_blocked(0.01)
        gate = found.disk.fsync_gate = trio.Event()
        for producer in producers:
            producer.client.send(found.frame([("plain", 0, producer.batch("plain", 0, b"x"))]))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert taken[True] == 5
        assert held_requests() == 5
        for producer in producers:
            producer.client.reset()
        while held_requests():  # noqa: ASYNC110 - until the server's watch has seen it
            await trio.sleep(0.05)
        gate.set()


def held_requests() -> int:
    gc.collect()
    return sum(isinstance(each, Taken) for each in gc.get_objects())


async def test_a_pending_request_of_the_lane_counts_in_memory(
    taken: Counter[bool], servers: list[Server]
) -> None:
    async with broker() as found:
        (producer,) = await producers_of(found, 1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        gate = found.disk.fsync_gate = trio.Event()
        before = [server.held_bytes for server in servers]
        producer.client.send(found.frame([("plain", 0, producer.batch("plain", 0, b"x"))]))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert taken[True] == 1
        assert [server.held_bytes for server in servers] > before
        gate.set()
        await producer.client.frames(2)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert [server.held_bytes for server in servers] == before


async def test_a_long_client_id_is_left_to_the_task(taken: Counter[bool]) -> None:
    async with broker() as found:
        (producer,) = await producers_of(found, 1)
        taken.clear()
        for length, is_taken in ((255, True), (256, False)):
            frame = found.frame(
                [("plain", 0, producer.batch("plain", 0, b"x"))], client_id="c" * length
            )
            producer.client.send(frame)
            producer.frames += 1
            await producer.answers()
            assert taken[not is_taken] == 0 < taken[is_taken]
            taken.clear()


async def test_a_request_above_the_limit_of_frames_is_not_taken(taken: Counter[bool]) -> None:
    """`socket.request.max.bytes` may be less than what the lane could take."""
    async with broker(socket_request_max_bytes="2000") as found:
        (producer,) = await producers_of(found, 1)
        producer.client.send(found.frame([("plain", 0, producer.batch("plain", 0, b"x" * 3_000))]))
        await producer.client.closed()


class EndsOfTurns(trio.abc.Instrument):
    """Counts the answers that have arrived at the end of each turn of the loop.

    A task that counted would run in some turns only: trio draws the order of the tasks of a turn.
    """

    def __init__(self, producers: Sequence[Producer]) -> None:
        self._producers = producers
        self.answers = [0]

    def before_io_wait(self, timeout: float) -> None:
        received = [each.client.received for each in self._producers]
        self.answers.append(sum(len(split_frames(each)) - 1 for each in received))


async def test_many_answers_leave_in_several_turns_of_the_loop(taken: Counter[bool]) -> None:
    async with broker() as found:
        producers = await producers_of(found, 130)
        await trio.testing.wait_all_tasks_blocked(0.01)
        gate = hold_turns(found)
        for producer in producers:
            producer.client.send(found.frame([("plain", 0, producer.batch("plain", 0, b"x"))]))
        await trio.testing.wait_all_tasks_blocked()
        gate.set()
        ends = EndsOfTurns(producers)
        trio.lowlevel.add_instrument(ends)
        offsets = {response((await each.client.frames(2))[-1]).base_offset for each in producers}
        trio.lowlevel.remove_instrument(ends)
        ends.before_io_wait(0)  # this turn has not ended yet
        assert ends.answers[-1] == 130
        assert max(after - before for before, after in pairwise(ends.answers)) < 130
        assert offsets == set(range(130, 260))


async def test_a_client_that_goes_before_its_answer_is_no_bug(
    caplog: pytest.LogCaptureFixture, taken: Counter[bool]
) -> None:
    async with broker() as found:
        one, other = await producers_of(found, 2)
        await trio.testing.wait_all_tasks_blocked(0.01)
        gate = found.disk.fsync_gate = trio.Event()
        for producer in (one, other):
            producer.client.send(found.frame([("plain", 0, producer.batch("plain", 0, b"x"))]))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert taken[True] == 2
        one.client.reset()
        gate.set()
        assert len(await other.client.frames(2)) == 2
        assert "a bug in the broker" not in caplog.text


async def test_a_client_that_does_not_read_gets_its_answers_later(taken: Counter[bool]) -> None:
    async with broker() as found:
        (producer,) = await producers_of(found, 1)
        producer.client.stop_reading()
        for number in range(3):
            batch = producer.batch("plain", 0, b"x")
            producer.client.send(found.frame([("plain", 0, batch)], correlation_id=number))
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert taken[True] == 3
        producer.client.go_on_reading()
        frames = (await producer.client.frames(4))[1:]
        assert [int.from_bytes(frame[:4], "big") for frame in frames] == [0, 1, 2]
