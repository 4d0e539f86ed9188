"""The real sockets: whole buffers, ends, resets; and what else comes from the system."""

import random
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable

import pytest
import trio

from odradek.broker.environment.env import Connection, OtherEnd
from odradek.broker.environment.system import (
    SystemClock,
    SystemNetwork,
    is_address,
    is_loopback,
    is_wildcard,
    raise_file_limit,
)

PATIENCE_SECONDS = 60


async def connected(
    nursery: trio.Nursery, address: str = "127.0.0.1"
) -> tuple[Connection, Connection]:
    """The two ends of a connection within this machine."""
    network = SystemNetwork()
    ports, arrived = trio.open_memory_channel[int](1)
    ends, accepted = trio.open_memory_channel[Connection](1)

    async def handler(connection: Connection) -> None:
        ends.send_nowait(connection)
        await trio.sleep_forever()

    def started(host: str, port: int, open_port: Callable[[], None]) -> None:
        open_port()
        ports.send_nowait(port)

    async def listen() -> None:
        await network.listen(address, 0, handler, started=started)

    nursery.start_soon(listen)
    client = await network.connect(address, await arrived.receive())
    return client, await accepted.receive()


async def receive(connection: Connection, count: int) -> bytes:
    data = bytearray(count)
    received = 0
    while received < count:
        more = await connection.receive_into(memoryview(data)[received:])
        if more == 0:
            break
        received += more
    return bytes(data[:received])


async def test_many_parts_and_megabytes_arrive_whole() -> None:
    rng = random.Random(1)
    parts = [rng.randbytes(rng.choice((0, 1, 100, 70_000))) for _ in range(1500)]
    whole = b"".join(parts)
    async with trio.open_nursery() as nursery:
        client, server = await connected(nursery)
        nursery.start_soon(client.send_all, parts)
        with trio.fail_after(PATIENCE_SECONDS):
            assert await receive(server, len(whole)) == whole
        assert client.peer.startswith("127.0.0.1:")
        await client.aclose()
        assert await receive(server, 1) == b""
        nursery.cancel_scope.cancel()


def own_address() -> str:
    """The address from which this machine would reach others; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(sock.getsockname()[0])


@pytest.mark.parametrize("address", ["127.0.0.1", own_address()])
async def test_a_client_on_this_machine_is_local_by_any_address(address: str) -> None:
    async with trio.open_nursery() as nursery:
        ends = await connected(nursery, address)
        assert [end.is_local for end in ends] == [True, True]
        await ends[0].aclose()
        nursery.cancel_scope.cancel()


async def send_for_ever(connection: Connection) -> None:
    while True:
        await connection.send_all([bytes(100_000)])


async def test_a_reset_is_a_broken_resource() -> None:
    async with trio.open_nursery() as nursery:
        client, server = await connected(nursery)
        await server.aclose()
        with trio.fail_after(PATIENCE_SECONDS), pytest.raises(trio.BrokenResourceError):
            await send_for_ever(client)
        await client.aclose()
        nursery.cancel_scope.cancel()


async def other_end_becomes(connection: Connection, wanted: OtherEnd) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        while connection.other_end is not wanted:
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("unread", [b"", b"pipelined"])
async def test_the_end_of_the_other_side_is_seen_and_no_byte_is_read(unread: bytes) -> None:
    async with trio.open_nursery() as nursery:
        for linger, expected in ((None, OtherEnd.HAS_ENDED), (0, OtherEnd.HAS_GONE)):
            client, server = await connected(nursery)
            await client.send_all([unread])
            assert server.other_end is OtherEnd.IS_THERE
            if linger is not None:
                sock = client._socket  # type: ignore[attr-defined]
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, linger))
            await client.aclose()
            await other_end_becomes(server, expected)
            assert await receive(server, len(unread)) == unread
        nursery.cancel_scope.cancel()


async def test_waiting_for_bytes_can_be_cancelled() -> None:
    async with trio.open_nursery() as nursery:
        client, _ = await connected(nursery)
        with trio.move_on_after(0.01) as scope:
            await client.receive_into(memoryview(bytearray(1)))
        assert scope.cancelled_caught
        await client.aclose()
        nursery.cancel_scope.cancel()


async def test_a_port_that_is_taken_is_an_os_error() -> None:
    with trio.socket.socket() as taken:
        await taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            await SystemNetwork().listen(
                "127.0.0.1", port, _nothing, started=lambda host, port, open_port: None
            )


async def _nothing(connection: Connection) -> None:
    await trio.lowlevel.checkpoint()


def test_addresses_are_told_apart() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost")] == [True] * 3
    assert [is_loopback(host) for host in ("0.0.0.0", "192.0.2.1", "a.b")] == [False] * 3
    assert [is_wildcard(host) for host in ("0.0.0.0", "::", "127.0.0.1", "a")] == [
        True,
        True,
        False,
        False,
    ]
    assert [is_address(host) for host in ("192.0.2.1", "::1", "localhost")] == [True, True, False]


def test_the_clock_is_the_walls() -> None:
    assert SystemClock().wall_ms() > 1_700_000_000_000


def test_many_files_may_be_open() -> None:
    assert raise_file_limit() >= 256


def test_a_fault_point_kills_when_it_is_reached_for_the_nth_time() -> None:
    program = (
        "from odradek.broker.environment.system import fault_points\n"
        "reached = fault_points('here:3')\n"
        "for number in range(5):\n"
        "    reached('elsewhere'); print(number, flush=True); reached('here')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.split() == [b"0", b"1", b"2"]


async def test_a_host_whose_name_no_thread_can_look_up_is_not_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ended the broker, which connects to others by their names."""

    async def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(trio.to_thread, "run_sync", refuse)
    with pytest.raises(OSError, match="can't start new thread"):
        await SystemNetwork().connect("broker.example", 9092)
