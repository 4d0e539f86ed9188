"""Frames of real sockets that are taken without a task, and those that are not."""

import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

import pytest
import trio
import trio.testing

from odradek.broker.environment import reactor as module
from odradek.broker.environment.env import Connection
from odradek.broker.environment.system import SystemNetwork

MAX_BYTES = 64 * 1024


@dataclass
class Served:
    """A listener whose connections take lines that begin with `+`, and leave the others."""

    port: int = 0
    taken: list[bytes] = field(default_factory=list)
    """What was taken; `|` where a turn ended that took something."""
    left: list[bytes] = field(default_factory=list)
    """What the tasks of the connections got; an empty one is the end of a stream."""
    resets: int = 0
    accepted: int = 0
    max_bytes: int = MAX_BYTES
    scope: trio.CancelScope | None = None
    """Ends the task of the next connection, if it is given."""

    def take(self, received: memoryview) -> tuple[int, bool]:
        at, data = 0, bytes(received)
        while (end := data.find(b"\n", at)) >= 0:
            if data[at : at + 1] != b"+":
                return at, False
            self.taken.append(data[at:end])
            at = end + 1
        return at, at < len(data) and data[at : at + 1] == b"+"

    def end_turn(self) -> None:
        if self.taken and self.taken[-1] != b"|":
            self.taken.append(b"|")

    async def serve(self, connection: Connection) -> None:
        self.accepted += 1
        with self.scope or nullcontext():
            await self._serve(connection)

    async def _serve(self, connection: Connection) -> None:
        try:
            while untaken := await connection.receive_untaken(self.take, self.max_bytes):
                self.left.append(bytes(untaken))
            self.left.append(b"")
        except trio.BrokenResourceError:
            self.resets += 1

    def client(self) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client


@asynccontextmanager
async def served(*, is_at_once: bool = True) -> AsyncIterator[Served]:
    found = Served()

    def started(host: str, port: int, open_port: Callable[[], None]) -> None:
        found.port = port
        open_port()

    async def listen() -> None:
        await SystemNetwork().listen(
            "127.0.0.1",
            0,
            found.serve,
            started=started,
            end_turn=found.end_turn if is_at_once else None,
        )

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            await until(lambda: found.port > 0)
            yield found
            nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    """Return when the sockets have made it true."""
    while not condition():  # noqa: ASYNC110
        await trio.sleep(0.001)


async def test_frames_that_are_taken_never_reach_the_task() -> None:
    async with served() as found:
        with found.client() as client:
            for line in (b"+0", b"+1", b"+2"):
                client.sendall(line + b"\n")
                await until(partial(_is_last, found.taken, line))
            assert found.taken == [b"+0", b"|", b"+1", b"|", b"+2", b"|"]
            assert not found.left


async def test_what_is_not_taken_goes_to_the_task_with_all_that_follows() -> None:
    async with served() as found:
        with found.client() as client:
            client.sendall(b"+a\n+b\n-c\n+d\n")
            await until(lambda: bool(found.left))
            assert found.left == [b"-c\n+d\n"]
            assert found.taken == [b"+a", b"+b", b"|"]
            client.sendall(b"+e\n")
            await until(lambda: b"+e" in found.taken)


async def test_a_part_of_a_frame_goes_to_the_task() -> None:
    async with served() as found:
        with found.client() as client:
            client.sendall(b"+a\n+hal")
            await until(lambda: bool(found.left))
            assert (found.taken, found.left) == ([b"+a", b"|"], [b"+hal"])


async def test_many_connections_share_a_turn() -> None:
    async with served() as found:
        clients = [found.client() for _ in range(300)]
        await until(lambda: found.accepted == 300)
        await trio.testing.wait_all_tasks_blocked()
        for client in clients:
            client.sendall(b"+x\n")
        await until(lambda: found.taken.count(b"+x") == 300)
        turns = found.taken.count(b"|")
        assert turns < 100, "far fewer turns than connections"
        for client in clients:
            client.close()
        await until(lambda: found.left.count(b"") == 300)


async def test_more_than_the_shared_memory_arrives_whole() -> None:
    """Connections for which a turn has no room are served in the next one."""
    async with served() as found:
        found.max_bytes = 8 * 1024
        line = b"+" + b"x" * 4_000
        clients = [found.client() for _ in range(40)]
        async with trio.open_nursery() as nursery:
            for client in clients:
                send = trio.socket.from_stdlib_socket(client).send
                nursery.start_soon(send_all, send, (line + b"\n") * 20)
        await until(lambda: found.taken.count(line) + _lines(found.left) >= 800)
        for client in clients:
            client.close()


def _is_last(taken: list[bytes], line: bytes) -> bool:
    return taken[-2:] == [line, b"|"]


def _lines(chunks: list[bytes]) -> int:
    return sum(chunk.count(b"\n") for chunk in chunks)


async def send_all(send: Callable[[bytes], Awaitable[int]], data: bytes) -> None:
    while data:
        data = data[await send(data) :]


async def test_none_waits_while_others_always_have_more() -> None:
    """The shared memory has room for a part of them in a turn."""
    served: Counter[int] = Counter()
    pairs = [socket.socketpair() for _ in range(40)]
    reactor = module.Reactor(lambda: None)

    def take(number: int, received: memoryview) -> tuple[int, bool]:
        served[number] += 1
        return len(received), False

    async with trio.open_nursery() as nursery:
        for number, (client, here) in enumerate(pairs):
            client.setblocking(False)
            here.setblocking(False)
            nursery.start_soon(reactor.receive_untaken, here, partial(take, number), MAX_BYTES)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(30):
            for client, _here in pairs:
                with suppress(BlockingIOError):
                    client.send(b"x" * MAX_BYTES)
            reactor._turn()
        nursery.cancel_scope.cancel()
    assert set(served) == set(range(40))
    for pair in pairs:
        for each in pair:
            each.close()


async def test_a_connection_that_ends_inside_a_turn_ends_alone() -> None:
    """What it reads after that is nobody's."""
    client, here = socket.socketpair()
    here.setblocking(False)
    reactor = module.Reactor(lambda: None)
    scope = trio.CancelScope()

    def take(received: memoryview) -> tuple[int, bool]:
        scope.cancel()
        return len(received), False

    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            with scope:
                await reactor.receive_untaken(here, take, 10)

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        client.send(b"x" * 25)
        reactor._turn()
    assert scope.cancelled_caught
    client.close()
    here.close()


async def test_a_read_goes_on_while_whole_frames_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_BYTES", 1_000)
    async with served() as found:
        found.max_bytes = 100
        with found.client() as client:
            sent = b"".join(b"+%02d\n" % number for number in range(75))
            client.sendall(sent + b"-end\n")
            await until(lambda: bool(found.left))
            assert [each for each in found.taken if each != b"|"] == sent.split()
            assert b"".join(found.left) == b"-end\n"


async def test_a_frame_longer_than_the_task_may_hold_goes_to_it_in_parts() -> None:
    async with served() as found:
        found.max_bytes = 10
        with found.client() as client:
            client.sendall(b"+" + b"x" * 24 + b"\n")
            await until(lambda: len(b"".join(found.left)) == 26)
            assert max(map(len, found.left)) <= 10


async def test_the_end_of_a_stream_reaches_the_task_behind_the_frames_before_it() -> None:
    async with served() as found:
        with found.client() as client:
            client.sendall(b"+a\n+b")
            client.shutdown(socket.SHUT_WR)
            await until(lambda: b"" in found.left)
            assert (found.taken, found.left) == ([b"+a", b"|"], [b"+b", b""])


async def test_a_reset_ends_the_connection_and_no_other() -> None:
    async with served() as found:
        other = found.client()
        client = found.client()
        client.sendall(b"+a\n")
        await until(lambda: b"+a" in found.taken)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        client.close()
        await until(lambda: found.resets == 1)
        other.sendall(b"+b\n")
        await until(lambda: b"+b" in found.taken)
        other.close()


async def test_a_cancelled_task_leaves_nothing_behind() -> None:
    """Its descriptor may be that of another connection next."""
    async with served() as found:
        found.scope = scope = trio.CancelScope()
        with found.client() as client:
            await trio.testing.wait_all_tasks_blocked(0.05)
            found.scope = None
            scope.cancel()
            assert await trio.to_thread.run_sync(client.recv, 1) == b""
        with found.client() as client:
            client.sendall(b"+b\n")
            await until(lambda: b"+b" in found.taken)


async def test_a_socket_that_the_system_does_not_watch_is_broken(tmp_path: Path) -> None:
    """It is so for all sockets beyond fs.epoll.max_user_watches, and always for a file."""
    reactor = module.Reactor(lambda: None)
    refused = pytest.raises(trio.BrokenResourceError, match="Operation not permitted")
    with (tmp_path / "file").open("wb") as file, refused:
        await reactor.receive_untaken(cast(socket.socket, file), Served().take, MAX_BYTES)


async def test_without_the_end_of_turns_the_task_gets_everything() -> None:
    """As on systems that have no epoll."""
    async with served(is_at_once=False) as found:
        with found.client() as client:
            client.sendall(b"+a\n")
            await until(lambda: bool(found.left))
        await until(lambda: b"" in found.left)
        assert (found.taken, b"".join(found.left)) == ([], b"+a\n")


async def test_what_taking_raises_ends_the_listener() -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        await _meet_a_bug()
    assert caught.group_contains(AssertionError, match="impossible")


async def _meet_a_bug() -> None:
    async with served() as found:

        def take(received: memoryview) -> tuple[int, bool]:
            raise AssertionError("impossible")

        found.take = take  # type: ignore[method-assign]
        with found.client() as client:
            client.sendall(b"+\n")
            await trio.sleep_forever()
