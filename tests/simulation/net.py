"""A network in memory between named machines, with latency and with links that can be cut.

Bytes arrive in order and after a delay, unless the link from sender to receiver is cut: then they
wait until it is healed, as TCP would send them again. A connection that is opened over a cut link
waits as well. Cuts are one-way; `Net.cut` cuts both.

A process that is killed resets its connections. A machine without power is silent. When it is back,
it answers what is sent on an old connection with a reset.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from random import Random
from zlib import crc32

import trio

from odradek.broker.environment.env import (
    Bound,
    Buffer,
    Connection,
    OtherEnd,
    Take,
    TlsContext,
    nothing_noted,
)
from odradek.broker.environment.reactor import is_possible
from tests.fakes.ready import ReadyTurns

Handler = Callable[[Connection], Awaitable[None]]
Link = tuple[str, str]  # sender, receiver

DELAY_SECONDS = 0.0005
"""The mean time that bytes are under way."""
WINDOW_BYTES = 256 * 1024
"""The bytes of one direction that may be sent and not received yet: then the sender waits."""
BACKLOG = 1000
SPLIT_PROBABILITY = 0.05
"""The probability that the receiver gets only a part of what has arrived."""


class MachineDown(BaseException):
    """The machine is off. It is not an Exception, so that no handler of the broker catches it."""


class Pipe:
    """One direction of a connection."""

    __slots__ = (
        "_arrived",
        "_changed",
        "_chunks",
        "_last",
        "_net",
        "has_ended",
        "in_flight",
        "is_abandoned",
        "is_reset",
        "link",
    )

    def __init__(self, net: "Net", sender: str, receiver: str) -> None:
        self._net = net
        self.link = (sender, receiver)
        self._chunks: deque[tuple[float, bytes]] = deque()  # when it arrives; b"" is the end
        self._arrived = bytearray()
        self._last = 0.0
        self._changed = trio.Event()
        self.in_flight = 0
        self.has_ended = False
        self.is_reset = False
        self.is_abandoned = False
        """True if the receiver takes nothing any more: what is sent is answered with a reset."""

    @property
    def is_empty(self) -> bool:
        return not self._chunks and not self._arrived

    def send(self, data: bytes) -> None:
        """Send bytes, or the end of the stream (b"")."""
        self._last = max(self._last, trio.current_time() + self._net.delay(self.link))
        self._chunks.append((self._last, data))
        self.in_flight += len(data)
        self._net.trace("send", *self.link, len(data), crc32(data))
        self.wake()

    def hold_until(self, at: float) -> None:
        """Let nothing that is sent from now on arrive before `at`."""
        self._last = max(self._last, at)

    def drop(self) -> None:
        """Lose what is under way."""
        self._chunks.clear()

    def reset(self) -> None:
        self.is_reset = True
        self.wake()

    def wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def changed(self) -> None:
        """Wait until something was sent or taken, or the pipe was reset, or its link is healed."""
        await self._changed.wait()

    def settle(self) -> None:
        """Let arrive what is due."""
        now = trio.current_time()
        while self._chunks and self._chunks[0][0] <= now and not self._net.is_cut(self.link):
            _, data = self._chunks.popleft()
            self._arrived += data
            self.has_ended = self.has_ended or not data

    async def arrival(self) -> None:
        """Wait until something may have arrived."""
        at = inf if self._net.is_cut(self.link) or not self._chunks else self._chunks[0][0]
        with trio.move_on_at(at):
            await self._changed.wait()

    def take(self, buffer: memoryview) -> int:
        """Move into `buffer` what has arrived, as far as there is room."""
        count = min(len(buffer), len(self._arrived))
        if count > 1 and self._net.splits():
            count = (count + 1) // 2
        buffer[:count] = self._arrived[:count]
        del self._arrived[:count]
        if count:
            if self.in_flight >= WINDOW_BYTES:
                self.wake()
            self.in_flight -= count
        return count


class End:
    """One end of a connection, on one machine."""

    def __init__(self, host: "Host", peer: str, incoming: Pipe, outgoing: Pipe) -> None:
        self._host = host
        self._life = host.life
        self._peer = peer
        self._is_closed = False
        self.turns: ReadyTurns | None = None
        self.incoming = incoming
        self.outgoing = outgoing

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def is_local(self) -> bool:
        return False

    @property
    def peer_certificate(self) -> bytes | None:
        return None

    async def handshake(self, note_progress: Callable[[], None] = nothing_noted) -> None:
        await trio.lowlevel.checkpoint()

    @property
    def other_end(self) -> OtherEnd:
        self.incoming.settle()
        if self.incoming.is_reset:
            return OtherEnd.HAS_GONE
        return OtherEnd.HAS_ENDED if self.incoming.has_ended else OtherEnd.IS_THERE

    def _check(self) -> None:
        self._host.check(self._life)
        if self._is_closed:
            raise trio.BrokenResourceError("this end was closed")
        if self.incoming.is_reset or self.outgoing.is_reset:
            raise trio.BrokenResourceError("the connection was reset")

    async def receive_into(self, buffer: memoryview) -> int:
        await trio.lowlevel.checkpoint()
        while True:
            self._check()
            self.incoming.settle()
            if count := self.incoming.take(buffer):
                return count
            if self.incoming.has_ended:
                return 0
            await self.incoming.arrival()

    async def receive_untaken(self, take: Take, max_bytes: int) -> bytearray:
        while True:
            buffer = bytearray(max_bytes)
            count = await self.receive_into(memoryview(buffer))
            received = buffer[:count]
            if self.turns is None or not received:
                return received
            if rest := await self.turns.offer(received, take):
                return rest

    async def send_all(self, parts: Sequence[Buffer]) -> None:
        await trio.lowlevel.checkpoint()
        while parts := self.send_now(parts):
            await self.outgoing.changed()

    def send_now(self, parts: Sequence[Buffer]) -> Sequence[Buffer]:
        self._check()
        data = b"".join(parts)
        if self.outgoing.is_abandoned:
            self.reset()
            return ()
        room = max(0, WINDOW_BYTES - self.outgoing.in_flight)
        if data[:room]:
            self.outgoing.send(data[:room])
        return (data[room:],) if data[room:] else ()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        self.close()

    def close(self) -> None:
        """Send the end of the stream, and take nothing any more."""
        if self._is_closed or self._host.life != self._life:
            return
        self._is_closed = True
        self._host.ends.pop(self, None)
        self.incoming.is_abandoned = True
        if not self.outgoing.is_reset:
            self.outgoing.send(b"")
        self.incoming.wake()

    def reset(self) -> None:
        self.incoming.reset()
        self.outgoing.reset()


class Host:
    """The network as one machine has it. `down` ends all of its connections."""

    def __init__(self, net: "Net", name: str) -> None:
        self._net = net
        self.name = name
        self.life = 0
        self.is_silent = False
        self.listeners: dict[int, trio.MemorySendChannel[End]] = {}
        self.ends: dict[End, None] = {}
        self._is_down = False
        self._orphans: list[End] = []
        self._port = 40_000

    def check(self, life: int) -> None:
        if self._is_down or life != self.life:
            raise MachineDown

    def down(self, *, is_heard: bool) -> None:
        """Stop the machine. `is_heard`: its peers get a reset; otherwise they hear nothing."""
        self._is_down = True
        self.is_silent = not is_heard
        self.life += 1
        self.listeners.clear()
        for end in list(self.ends):
            if is_heard:
                end.reset()
            else:
                end.outgoing.drop()
                self._orphans.append(end)
        self.ends.clear()

    def up(self) -> None:
        self._is_down = self.is_silent = False
        orphans, self._orphans = self._orphans, []
        for end in orphans:
            end.incoming.is_abandoned = True
            if not end.incoming.is_empty:
                end.reset()

    async def connect(self, host: str, port: int, *, tls: TlsContext | None = None) -> Connection:
        assert tls is None, "this network has no TLS"
        life = self.life
        self.check(life)
        await self._net.linked(self.name, host)
        await trio.sleep(self._net.delay((self.name, host)))
        await self._net.linked(host, self.name)
        self.check(life)
        other = self._net.host(host)
        if other.is_silent:
            await trio.sleep_forever()
        listener = other.listeners.get(port)
        if listener is None:
            raise ConnectionRefusedError(f"nothing listens on {host}:{port}")
        there, back = self._net.pipe(self.name, host), self._net.pipe(host, self.name)
        self._port += 1
        mine = End(self, f"{host}:{port}", back, there)
        theirs = End(other, f"{self.name}:{self._port}", there, back)
        self.ends[mine] = None
        other.ends[theirs] = None
        listener.send_nowait(theirs)
        return mine

    async def listen(
        self,
        host: str,
        port: int,
        handler: Handler,
        *,
        started: Bound,
        end_turn: Callable[[], None] | None = None,
        tls: TlsContext | None = None,
    ) -> None:
        assert tls is None, "this network has no TLS"
        life = self.life
        self.check(life)
        arrivals, accepted = trio.open_memory_channel[End](BACKLOG)
        turns = None
        async with trio.open_nursery() as nursery:
            if end_turn is not None and self._net.is_at_once:
                turns = ReadyTurns(end_turn, self._net.ready)
                nursery.start_soon(turns.run)

            def open_port() -> None:
                self.listeners[port] = arrivals

            started(host, port, open_port)
            try:
                async for end in accepted:
                    end.turns = turns
                    nursery.start_soon(self._serve, end, handler)
            finally:
                if self.life == life:
                    self.listeners.pop(port, None)

    @staticmethod
    async def _serve(end: End, handler: Handler) -> None:
        try:
            await handler(end)
        finally:
            end.close()


class Net:
    """All machines, and the links between them."""

    def __init__(self, rng: Random, trace: Callable[..., None] = lambda *_: None) -> None:
        self._rng = rng
        self.trace = trace
        self.hosts: dict[str, Host] = {}
        self.mean_delay_seconds = DELAY_SECONDS
        self._pipes: dict[Pipe, None] = {}
        self._cuts: dict[Link, trio.Event] = {}
        self.left: set[Link] = set()
        """The cuts that `heal` does not end."""
        self._slow: dict[Link, float] = {}
        self.is_at_once = is_possible()
        """False: brokers serve each connection by its task, and take nothing at once."""

    def host(self, name: str) -> Host:
        found = self.hosts.get(name)
        if found is None:
            found = self.hosts[name] = Host(self, name)
        return found

    def delay(self, link: Link) -> float:
        return self._rng.expovariate(1 / self._slow.get(link, self.mean_delay_seconds))

    def splits(self) -> bool:
        return self._rng.random() < SPLIT_PROBABILITY

    def ready(self, count: int) -> int:
        """Return how many of the connections that are ready are served in a turn."""
        return self._rng.randint(1, count)

    def pipe(self, sender: str, receiver: str) -> Pipe:
        pipe = Pipe(self, sender, receiver)
        self._pipes[pipe] = None
        return pipe

    def connections(self) -> list[End]:
        """Return one end of each connection that both sides have open."""
        pipes = {pipe for pipe in self._pipes if not pipe.is_reset and not pipe.is_abandoned}
        ends = [end for host in self.hosts.values() for end in host.ends]
        return [end for end in ends if end.incoming in pipes and end.outgoing in pipes]

    def forget_closed(self) -> None:
        """Forget pipes that nobody uses."""
        self._pipes = {pipe: None for pipe in self._pipes if not pipe.is_reset}

    # faults

    def is_cut(self, link: Link) -> bool:
        return link in self._cuts

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

    def slow(self, sender: str, receiver: str, mean_seconds: float) -> None:
        """Let a link take longer, in both directions, until it is healed."""
        self._slow[sender, receiver] = self._slow[receiver, sender] = mean_seconds

    def heal(self, *links: Link) -> None:
        """Heal some links in both directions, or all of them."""
        wanted = [*links, *((receiver, sender) for sender, receiver in links)]
        for link in wanted or [*self._cuts, *self._slow]:
            self._slow.pop(link, None)
            healed = None if link in self.left else self._cuts.pop(link, None)
            if healed is not None:
                healed.set()
        for pipe in self._pipes:
            pipe.wake()
