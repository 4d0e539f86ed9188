"""A network in memory between named machines, with latency and with links that can be cut.

Bytes arrive in order and after a delay, unless the link from sender to receiver is cut: then they
wait until it is healed, as TCP would send them again. A connection that is opened over a cut link
waits as well. Cuts are one-way; `Net.cut` cuts both.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random

import trio

from odradek.broker.env import Buffer, Connection, OtherEnd

Handler = Callable[[Connection], Awaitable[None]]

DELAY_SECONDS = 0.0005
"""The mean time that bytes are under way."""


class MachineDown(BaseException):
    """The machine is off. It is not an Exception, so that no handler of the broker catches it."""


class Pipe:
    """One direction of a connection."""

    def __init__(self, net: "Net", sender: str, receiver: str) -> None:
        self._net = net
        self.link = (sender, receiver)
        self._waiting: deque[tuple[float, bytes | None]] = deque()
        self._last = 0.0
        self._more = trio.Event()
        self.arrived = bytearray()
        self.has_ended = False
        self.is_reset = False
        self.changed = trio.Event()

    def send(self, data: bytes | None) -> None:
        """Send bytes, or the end of the stream."""
        at = max(self._last, trio.current_time() + self._net.delay())
        self._last = at
        self._waiting.append((at, data))
        self._more.set()

    def reset(self) -> None:
        """End the connection for the receiver, at once."""
        self.is_reset = True
        self._wake()
        self._more.set()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def carry(self) -> None:
        """Deliver what is sent, until the end of the stream."""
        while not self.is_reset:
            if not self._waiting:
                self._more = trio.Event()
                await self._more.wait()
                continue
            at, data = self._waiting[0]
            await trio.sleep_until(at)
            await self._net.linked(*self.link)
            if self.is_reset:
                return
            self._waiting.popleft()
            if data is None:
                self.has_ended = True
                self._wake()
                return
            self.arrived += data
            self._wake()


class End:
    """One end of a connection, on one machine."""

    def __init__(self, host: "Host", peer: str, incoming: Pipe, outgoing: Pipe) -> None:
        self._host = host
        self._life = host.life
        self._peer = peer
        self._in = incoming
        self._out = outgoing

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def other_end(self) -> OtherEnd:
        if self._in.is_reset:
            return OtherEnd.HAS_GONE
        return OtherEnd.HAS_ENDED if self._in.has_ended else OtherEnd.IS_THERE

    def _check(self) -> None:
        self._host.check(self._life)
        if self._in.is_reset or self._out.is_reset:
            raise trio.BrokenResourceError("the connection was reset")

    async def receive_into(self, buffer: memoryview) -> int:
        await trio.lowlevel.checkpoint()
        await self._host.running()
        self._check()
        while not self._in.arrived and not self._in.has_ended:
            await self._in.changed.wait()
            await self._host.running()
            self._check()
        count = min(len(buffer), len(self._in.arrived))
        buffer[:count] = self._in.arrived[:count]
        del self._in.arrived[:count]
        return count

    async def send_all(self, parts: Sequence[Buffer]) -> None:
        await trio.lowlevel.checkpoint()
        await self._host.running()
        self.send_now(parts)

    def send_now(self, parts: Sequence[Buffer]) -> Sequence[Buffer]:
        self._check()
        self._out.send(b"".join(parts))
        return ()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._host.life == self._life and not self._out.is_reset:
            self._out.send(None)

    def reset(self) -> None:
        self._in.reset()
        self._out.reset()


class Host:
    """The network as one machine has it. `kill` ends all of its connections."""

    def __init__(self, net: "Net", name: str) -> None:
        self._net = net
        self.name = name
        self.life = 0
        self.is_down = False
        self.listeners: dict[int, tuple[trio.Nursery, Handler]] = {}
        self.ends: dict[End, None] = {}
        self._running = trio.Event()
        self._running.set()
        self._port = 40_000

    def check(self, life: int) -> None:
        if self.is_down or life != self.life:
            raise MachineDown

    async def running(self) -> None:
        """Wait for the end of a pause."""
        await self._running.wait()

    def pause(self) -> None:
        self._running = trio.Event()

    def resume(self) -> None:
        self._running.set()

    def down(self, *, is_heard: bool) -> None:
        """Stop the machine. `is_heard`: its peers get a reset; otherwise they hear nothing."""
        self.is_down = True
        self.life += 1
        self.listeners.clear()
        for end in list(self.ends):
            if is_heard:
                end.reset()
            else:
                self._net.forgotten.append(end)
        self.ends.clear()
        self.resume()

    def up(self) -> None:
        self.is_down = False

    async def connect(self, host: str, port: int) -> Connection:
        life = self.life
        await self.running()
        self.check(life)
        await self._net.linked(self.name, host)
        await trio.sleep(self._net.delay())
        await self._net.linked(host, self.name)
        self.check(life)
        other = self._net.hosts.get(host)
        if other is None or (other.is_down and other.is_silent):
            await trio.sleep_forever()
        assert other is not None
        found = other.listeners.get(port)
        if found is None:
            raise ConnectionRefusedError(f"nothing listens on {host}:{port}")
        nursery, handler = found
        there, back = self._net.pipe(self.name, host), self._net.pipe(host, self.name)
        self._port += 1
        mine = End(self, f"{host}:{port}", back, there)
        theirs = End(other, f"{self.name}:{self._port}", there, back)
        self.ends[mine] = None
        other.ends[theirs] = None
        nursery.start_soon(partial(self._serve, other, theirs, handler))
        return mine

    @property
    def is_silent(self) -> bool:
        return self._net.silent.get(self.name, False)

    @staticmethod
    async def _serve(other: "Host", end: End, handler: Handler) -> None:
        try:
            await handler(end)
        finally:
            with trio.CancelScope(shield=True):
                await end.aclose()
            other.ends.pop(end, None)

    async def listen(
        self,
        host: str,
        port: int,
        handler: Handler,
        *,
        started: Callable[[str, int], None],
    ) -> None:
        life = self.life
        self.check(life)
        async with trio.open_nursery() as nursery:
            self.listeners[port] = (nursery, handler)
            started(host, port)
            try:
                await trio.sleep_forever()
            finally:
                if self.life == life:
                    self.listeners.pop(port, None)


class Net:
    """All machines, and the links between them."""

    def __init__(self, rng: Random, nursery: trio.Nursery) -> None:
        self._rng = rng
        self._nursery = nursery
        self.hosts: dict[str, Host] = {}
        self.forgotten: list[End] = []
        self.silent: dict[str, bool] = {}
        self.mean_delay_seconds = DELAY_SECONDS
        self._cuts: dict[tuple[str, str], trio.Event] = {}

    def host(self, name: str) -> Host:
        found = self.hosts.get(name)
        if found is None:
            found = self.hosts[name] = Host(self, name)
        return found

    def delay(self) -> float:
        return self._rng.expovariate(1 / self.mean_delay_seconds)

    def pipe(self, sender: str, receiver: str) -> Pipe:
        pipe = Pipe(self, sender, receiver)
        self._nursery.start_soon(pipe.carry)
        return pipe

    async def linked(self, sender: str, receiver: str) -> None:
        """Wait until nothing cuts the link from one machine to another."""
        while (healed := self._cuts.get((sender, receiver))) is not None:
            await healed.wait()

    def cut(self, sender: str, receiver: str, *, one_way: bool = False) -> None:
        """Cut the link between two machines, or only one direction of it."""
        self._cuts.setdefault((sender, receiver), trio.Event())
        if not one_way:
            self._cuts.setdefault((receiver, sender), trio.Event())

    def isolate(self, name: str) -> None:
        """Cut all links of a machine."""
        for other in self.hosts:
            if other != name:
                self.cut(name, other)

    def heal(self) -> None:
        cuts, self._cuts = self._cuts, {}
        for healed in cuts.values():
            healed.set()
