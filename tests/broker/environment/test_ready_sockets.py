"""What is received on sockets that are ready, in C as in Python."""

import errno
import os
import random
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from odradek.broker.environment import compiled, ready_sockets
from odradek.broker.environment.ready_sockets import PLAIN, UNTRIED, Receive, Received, receive

MEMORY_BYTES: Final = 1_000
ROOM: Final = 100
MUST_NOT_SKIP: Final = "ODRADEK_CI"
IN_C: Final = ready_sockets.receive_in_c()
BOTH: Final = [
    receive,
    pytest.param(
        IN_C,
        marks=pytest.mark.skipif(
            IN_C is None and MUST_NOT_SKIP not in os.environ, reason="built without a C compiler"
        ),
        id="in-c",
    ),
]


class Sockets:
    """Pairs of sockets, of which one side is in an epoll."""

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.clients: list[socket.socket] = []
        self.ours: list[socket.socket] = []
        self.memory = memoryview(bytearray(MEMORY_BYTES))

    def add(self, sent: bytes = b"", events: int = PLAIN) -> socket.socket:
        client, here = socket.socketpair()
        here.setblocking(False)
        self.clients.append(client)
        self.ours.append(here)
        client.sendall(sent)
        self.epoll.register(here.fileno(), events)
        return client

    def received(self, receive: Receive, *, start: int = 0, count: int = 16) -> list[Received]:
        """What one call finds, with the number of each pair in place of the descriptor."""
        numbers = {here.fileno(): number for number, here in enumerate(self.ours)}
        found = receive(self.epoll, self.memory, start, ROOM, count)
        return [(numbers[descriptor], at, size) for descriptor, at, size in found]


@contextmanager
def sockets() -> Iterator[Sockets]:
    found = Sockets()
    try:
        yield found
    finally:
        for each in (*found.clients, *found.ours):
            each.close()
        found.epoll.close()


@pytest.mark.parametrize("receive", BOTH)
def test_what_has_arrived_on_sockets_stands_one_behind_the_other(receive: Receive) -> None:
    with sockets() as found:
        for sent in (b"one", b"", b"three", b"four"):
            found.add(sent)
        assert found.received(receive, start=10) == [(0, 10, 3), (2, 13, 5), (3, 18, 4)]
        assert bytes(found.memory[10:23]) == b"onethreefour\0"
        assert found.received(receive) == []


@pytest.mark.parametrize("receive", BOTH)
def test_a_stream_that_ends_and_one_that_is_reset_are_told_apart(receive: Receive) -> None:
    with sockets() as found:
        found.add(b"the end").close()
        reset = found.add()
        found.ours[1].send(b"unread")
        reset.close()
        first = found.received(receive)
        assert first == [(0, 0, 7), (1, 7, -errno.ECONNRESET)]
        assert (0, 0, 0) in found.received(receive)


@pytest.mark.parametrize("receive", BOTH)
def test_behind_a_socket_that_fills_its_room_no_other_is_tried(receive: Receive) -> None:
    with sockets() as found:
        for size in (3, ROOM + 1, 3):
            found.add(b"x" * size)
        assert found.received(receive) == [(0, 0, 3), (1, 3, ROOM), (2, MEMORY_BYTES, UNTRIED)]
        assert found.received(receive) == [(1, 0, 1), (2, 1, 3)]


@pytest.mark.parametrize("receive", BOTH)
def test_without_room_in_the_memory_nothing_is_tried(receive: Receive) -> None:
    with sockets() as found:
        found.add(b"x")
        start = MEMORY_BYTES - ROOM + 1
        assert found.received(receive, start=start) == [(0, start, UNTRIED)]
        assert found.received(receive, start=start - 1) == [(0, start - 1, 1)]


@pytest.mark.parametrize("receive", BOTH)
def test_a_socket_whose_bytes_are_somebody_elses_is_left_alone(receive: Receive) -> None:
    """As that of TLS."""
    with sockets() as found:
        found.add(b"x", events=select.EPOLLIN)
        assert found.received(receive) == [(0, 0, UNTRIED)]
        assert found.ours[0].recv(10) == b"x"


@pytest.mark.parametrize("receive", BOTH)
def test_an_epoll_that_is_closed_is_an_error(receive: Receive) -> None:
    with sockets() as found:
        found.add(b"x")
        found.epoll.close()
        with pytest.raises(ValueError, match="closed"):
            found.received(receive)


@pytest.mark.skipif(IN_C is None and MUST_NOT_SKIP not in os.environ, reason="not compiled")
@pytest.mark.parametrize("seed", range(20))
def test_the_two_receive_alike(seed: int) -> None:
    assert IN_C is not None
    assert _run(IN_C, seed) == _run(receive, seed)


def _run(receive: Receive, seed: int) -> list[tuple[list[Received], bytes]]:
    """All that is received on sockets of one seed, call by call."""
    dice, results = random.Random(seed), []
    with sockets() as found:
        for _ in range(dice.randint(1, 30)):
            found.add(events=dice.choice((PLAIN, PLAIN, PLAIN, select.EPOLLIN)))
        for _ in range(20):
            for client in found.clients:
                match dice.randrange(12):
                    case 0 | 1 | 2 if client.fileno() >= 0:
                        client.sendall(dice.randbytes(dice.choice((1, 50, ROOM, 2 * ROOM))))
                    case 3 if dice.randrange(4) == 0:
                        client.close()
                    case _:
                        pass
            start = dice.choice((0, 0, MEMORY_BYTES - ROOM))
            results.append(
                (
                    found.received(receive, start=start, count=dice.choice((1, 4, 16))),
                    bytes(found.memory),
                )
            )
    return results


def test_without_c_the_function_in_python_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compiled.OFF, "1")
    assert ready_sockets.fastest_receive() is receive


@pytest.mark.skipif(IN_C is None and MUST_NOT_SKIP not in os.environ, reason="not compiled")
def test_the_function_in_c_serves_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(compiled.OFF, raising=False)
    assert ready_sockets.fastest_receive() is not receive
