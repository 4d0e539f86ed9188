"""Small answers that wait for the disk: the end of the fsync sends them, or the writer does."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from odradek.broker.api.context import Deferred, RequestContext
from odradek.protocol.apis.coordinator import FindCoordinatorRequest
from odradek.protocol.apis.coordinator import FindCoordinatorResponse as Answer
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.serving import Asked, answers, echo, handlers, serving


class SlowDisk:
    """A handler whose answers wait until `flush` is called, as those of Produce do."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.flushed = trio.Event()
        self.finished: list[str] = []

    async def handle(self, context: RequestContext, request: FindCoordinatorRequest) -> Any:
        answer = Answer(node_id=int(request.key), error_message=None)

        async def finish() -> Answer:
            await self.flushed.wait()
            self.finished.append(request.key)
            return answer

        def answer_now() -> Answer | None:
            return answer if self.flushed.is_set() else None

        return Deferred(finish, self.waiting.append, answer_now)

    def flush(self) -> None:
        self.flushed.set()
        self.call_back()

    def call_back(self) -> None:
        for callback in self.waiting:
            callback()


async def test_small_answers_are_sent_in_order_and_the_writer_is_not_woken() -> None:
    asked, disk = Asked(), SlowDisk()
    async with serving(handlers(disk.handle)) as (network, server):
        client = network.client()
        for number in range(3):
            client.send(asked.frame(number))
        await trio.testing.wait_all_tasks_blocked()
        assert client.received == b""
        assert server.held_bytes > 0
        disk.flush()
        assert await answers(client, asked, 3) == [0, 1, 2]
        assert disk.finished == []
        assert server.held_bytes == 0


async def test_an_answer_that_is_due_before_an_earlier_one_waits_for_it() -> None:
    asked, disk = Asked(), SlowDisk()
    async with serving(handlers(disk.handle)) as (network, _):
        client = network.client()
        client.send(asked.frame(0) + asked.frame(1) + asked.frame(2))
        await trio.testing.wait_all_tasks_blocked()
        disk.waiting.reverse()
        disk.flush()
        assert await answers(client, asked, 3) == [0, 1, 2]


async def test_after_a_half_close_small_answers_are_sent_and_the_connection_ends() -> None:
    asked, disk = Asked(), SlowDisk()
    async with serving(handlers(disk.handle)) as (network, server):
        client = network.client()
        client.send(asked.frame(7))
        client.half_close()
        await trio.testing.wait_all_tasks_blocked()
        disk.flush()
        assert await answers(client, asked, 1) == [7]
        await client.closed()
        assert server.held_bytes == 0


async def test_a_client_that_does_not_read_gets_its_small_answers_later() -> None:
    asked, disk = Asked(), SlowDisk()
    async with serving(handlers(disk.handle)) as (network, server):
        client = network.client()
        client.stop_reading()
        client.send(asked.frame(0) + asked.frame(1))
        await trio.testing.wait_all_tasks_blocked()
        disk.flush()
        await trio.testing.wait_all_tasks_blocked()
        assert client.received == b""
        client.go_on_reading()
        assert await answers(client, asked, 2) == [0, 1]
        await trio.testing.wait_all_tasks_blocked()
        assert server.held_bytes == 0


async def test_an_fsync_that_ends_early_leaves_the_answer_to_the_writer() -> None:
    asked, disk = Asked(), SlowDisk()
    async with serving(handlers(disk.handle)) as (network, _):
        client = network.client()
        client.send(asked.frame(3))
        await trio.testing.wait_all_tasks_blocked()
        disk.call_back()
        await trio.testing.wait_all_tasks_blocked()
        assert client.received == b""
        disk.flushed.set()
        assert await answers(client, asked, 1) == [3]
        assert disk.finished == ["3"]


async def test_an_answer_whose_fsync_never_ends_is_finished_by_the_writer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its `finish` alone has the time limit of the request."""
    asked = Asked()

    async def handle(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        async def finish() -> Answer:
            await trio.sleep(5)
            return await echo(context, request)

        return Deferred(finish, lambda _callback: None)

    async with serving(handlers(handle)) as (network, _):
        client = network.client()
        client.send(asked.frame(4))
        assert await answers(client, asked, 1) == [4]
        assert trio.current_time() < 7


async def test_a_callback_for_a_client_that_has_gone_does_nothing() -> None:
    asked, disk = Asked(), SlowDisk()
    async with serving(handlers(disk.handle)) as (network, server):
        client = network.client()
        client.send(asked.frame(0))
        await trio.testing.wait_all_tasks_blocked()
        client.reset()
        await client.closed()
        assert server.held_bytes == 0
        disk.flush()


async def test_a_bug_in_a_small_answer_closes_its_connection_with_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked, waiting = Asked(), list[Callable[[], None]]()

    async def handle(context: RequestContext, request: FindCoordinatorRequest) -> Any:
        def fail() -> Answer:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "should have become a code")

        async def finish() -> Answer:
            return fail()

        return Deferred(finish, waiting.append, fail)

    async with serving(handlers(handle)) as (network, _):
        client = network.client()
        client.send(asked.frame(1))
        await trio.testing.wait_all_tasks_blocked()
        waiting[0]()
        await client.closed()
    assert [record.exc_info is not None for record in caplog.records] == [True]
