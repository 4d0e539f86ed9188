"""A process whose trio programs are ended by SIGINT, each at another moment.

`test_ctrl_c_in_tasks.py` starts it with an address, a topic of four partitions, and what the
program does. A line says how each program ended.

A moment is a place in the client's own code, so that the signal comes in its tasks as well:
a line of code that runs, a read or a write of a connection, or a callback of a delivery.
"""

import contextlib
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

import trio

import odradek.client
from odradek.client import Admin, Consumer, Producer, RecordMetadata, TopicPartition
from odradek.client.config import ConsumerOptions
from odradek.client.errors import OdradekError
from odradek.client.network import Stream, connect_tcp
from odradek.protocol.schema import Buffer
from tests.client.stay_and_end import options_of

CLIENT: Final = str(Path(odradek.client.__file__).parent)
MOMENTS: Final = 40
"""The lines of code at which a program is ended, in as many runs of it."""
ENOUGH: Final = 6
"""The rounds of a program within which these lines are."""

Connecting = Callable[[str, int], Awaitable[Stream]]
Program = Callable[[str, str, Connecting, "Bell"], Awaitable[None]]


class Bell:
    """Raises SIGINT once, at the n-th time it is struck."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.struck = 0

    def strike(self) -> None:
        self.struck += 1
        if self.struck == self.at:
            signal.raise_signal(signal.SIGINT)

    def trace(self, frame: FrameType, event: str, value: object) -> Any:
        """Strike at every line of the client that runs. It is a function for `sys.settrace`."""
        return self._line if frame.f_code.co_filename.startswith(CLIENT) else None

    def _line(self, frame: FrameType, event: str, value: object) -> Any:
        if event == "line":
            self.strike()
        return self._line


class BellStream:
    """A stream that strikes a bell in the tasks that read and write."""

    def __init__(self, stream: Stream, reading: Bell, writing: Bell) -> None:
        self._stream = stream
        self._reading = reading
        self._writing = writing

    @property
    def peer(self) -> str:
        return self._stream.peer

    async def receive_into(self, buffer: memoryview) -> int:
        count = await self._stream.receive_into(buffer)
        self._reading.strike()
        return count

    def send_now(self, parts: Sequence[Buffer]) -> Sequence[Buffer]:
        self._writing.strike()
        return self._stream.send_now(parts)

    async def send_all(self, parts: Sequence[Buffer]) -> None:
        self._writing.strike()
        await self._stream.send_all(parts)

    async def aclose(self) -> None:
        await self._stream.aclose()


class BellSockets(trio.abc.SocketFactory):
    """Strikes a bell in the tasks in which trio connects."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell

    def socket(
        self,
        family: int | None = None,
        type: int | None = None,  # trio's name
        proto: int | None = None,
    ) -> trio.socket.SocketType:
        self._bell.strike()
        trio.socket.set_custom_socket_factory(None)
        try:
            return trio.socket.socket(family or -1, type or -1, proto or -1)
        finally:
            trio.socket.set_custom_socket_factory(self)


async def be_member(
    protocol: str, address: str, topic: str, connect: Connecting, rounds: Bell
) -> None:
    """Read as a member, which gets all partitions only if the one before has left."""
    options = {**options_of(topic, protocol), "connect": connect, "enable_auto_commit": True}
    async with Consumer(address, **cast(ConsumerOptions, options)) as consumer:
        consumer.subscribe(topic)
        while True:
            for record in await consumer.poll(10):
                place = TopicPartition(record.topic, record.partition)
                await consumer.commit({place: record.offset + 1})
            if len(consumer.assignment()) == 4:
                rounds.strike()


async def write(address: str, topic: str, connect: Connecting, rounds: Bell) -> None:
    """Write one transaction after the other."""
    async with Producer(address, transactional_id=topic, connect=connect) as producer:
        while True:
            async with producer.transaction() as transaction:
                await transaction.send(topic, b"x")
                await producer.flush()
                await transaction.send(topic, b"y")
            rounds.strike()


async def call_back(address: str, topic: str, connect: Connecting, rounds: Bell) -> None:
    """Write, with a callback for each record."""

    def told(metadata: RecordMetadata | None, error: OdradekError | None) -> None:
        rounds.strike()

    async with Producer(address, connect=connect) as producer:
        while True:
            await producer.send(topic, b"x", on_delivery=told)
            await trio.sleep(0.001)


async def ask(address: str, topic: str, connect: Connecting, rounds: Bell) -> None:
    """Ask several brokers and groups at once."""
    async with Admin(address, connect=connect) as admin:
        while True:
            await admin.list_groups()
            await admin.describe_groups(topic, "another")
            await admin.list_transactions()
            rounds.strike()


PROGRAMS: Final[dict[str, Program]] = {
    "member of the new protocol": partial(be_member, "consumer"),
    "member of the classic protocol": partial(be_member, "classic"),
    "transactions": write,
    "deliveries": call_back,
    "admin": ask,
}


def never() -> Bell:
    return Bell(-1)


def ended(
    run: Callable[..., Awaitable[None]], address: str, topic: str, connect: Connecting, bell: Bell
) -> str:
    """Run a program, and return how it ended."""
    try:
        trio.run(run, address, topic, connect, bell)
    except KeyboardInterrupt:
        return "KeyboardInterrupt"
    except BaseException as error:
        traceback.print_exception(error)
        return type(error).__name__
    return "no exception"


def ring_at_lines(program: Program, address: str, topic: str) -> None:
    """End a program at lines of the client that are spread evenly over a few rounds of it."""
    count = lines_until(program, address, topic)
    for number in range(1, MOMENTS + 1):
        bell = Bell(number * count // MOMENTS)
        sys.settrace(bell.trace)
        way = ended(program, address, topic, connect_tcp, never())
        sys.settrace(None)
        print(f"at a line: {way}", flush=True)


def lines_until(program: Program, address: str, topic: str) -> int:
    """Return the lines of the client that run until the last of `ENOUGH` rounds."""
    counting = never()
    sys.settrace(counting.trace)
    ended(program, address, topic, connect_tcp, Bell(ENOUGH))
    sys.settrace(None)
    assert counting.struck > 5 * MOMENTS, "so many lines of the client run in a few rounds"
    return counting.struck


def ring_in_tasks(program: Program, address: str, topic: str) -> None:
    """End a program in the tasks that connect, read and write, and in what it calls itself."""
    for at in (1, 3, 7, 12):
        for reading, writing in ((Bell(at), never()), (never(), Bell(at))):

            async def connect(
                host: str, port: int, reading: Bell = reading, writing: Bell = writing
            ) -> Stream:
                return BellStream(await connect_tcp(host, port), reading, writing)

            way = ended(program, address, topic, connect, never())
            print(f"in a connection's task: {way}", flush=True)
        print(f"in the program: {ended(program, address, topic, connect_tcp, Bell(at))}")
    knocking = Bell(1)

    async def knock(*args: Any) -> None:
        trio.socket.set_custom_socket_factory(BellSockets(knocking))
        await program(*args)

    way = ended(knock, address, topic, connect_tcp, never())
    print(f"in a task in which trio connects: {way}", flush=True)


def main(address: str, topic: str, name: str) -> None:
    ring_in_tasks(PROGRAMS[name], address, topic)
    ring_at_lines(PROGRAMS[name], address, topic)
    print("done", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main(*sys.argv[1:])
