"""A metadata store in memory, with etcd's revisions, leases and watches, and with faults.

`MetaServer` is the store. `FakeMetaStore` is the store as one broker reaches it: requests and
answers take time or are lost, watches lag, end or become silent. Without any fault set, a call
takes no time. Everything happens on trio's clock and in a fixed order.
"""

import heapq
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, Generic, TypeVar

import outcome
import trio

from odradek.broker.cluster.keys_in_memory import KeysInMemory, KeysWatch
from odradek.broker.environment.env import (
    NO_PUTS,
    Changes,
    Compare,
    LeaseExpired,
    OutcomeUnknown,
    StoreUnreachable,
    Versioned,
    check_operations,
)
from odradek.protocol.errors import KafkaError

T = TypeVar("T")


@dataclass(order=True, slots=True)
class _Request(Generic[T]):
    """A call on its way. It takes effect when it arrives, even if its caller waits no longer."""

    arrives_at: float
    number: int
    serve: Callable[[], T] = field(compare=False)
    result: "outcome.Value[T] | outcome.Error | None" = field(default=None, compare=False)


class MetaServer:
    """Keys, leases, and requests that have been sent and have not arrived."""

    def __init__(self) -> None:
        self.keys = KeysInMemory()
        self._under_way: list[_Request[Any]] = []
        self._sent = 0
        self._granted: list[int] = []

    def send(self, serve: Callable[[], T], delay_s: float) -> _Request[T]:
        """Call `serve` after `delay_s`, whatever happens to the caller."""
        self._sent += 1
        request = _Request(trio.current_time() + delay_s, self._sent, serve)
        heapq.heappush(self._under_way, request)
        self.keys.wake()
        return request

    def advance(self) -> None:
        """Do what is due by now, in the order of time: requests arrive and leases expire."""
        now = trio.current_time()
        while (due := self.next_event()) <= now:
            self.keys.expire(due)
            while self._under_way and self._under_way[0].arrives_at <= due:
                request = heapq.heappop(self._under_way)
                request.result = outcome.capture(request.serve)

    def elect(self) -> None:
        """Begin the time of every lease anew, as etcd does when another of its nodes leads."""
        now = trio.current_time()
        for lease in self._granted:
            with suppress(LeaseExpired):
                self.keys.keep(lease, now)

    def grant_lease(self, ttl_s: int) -> int:
        lease = self.keys.grant(ttl_s, trio.current_time())
        self._granted.append(lease)
        return lease

    def next_event(self) -> float:
        arrival = self._under_way[0].arrives_at if self._under_way else inf
        return min(arrival, self.keys.next_expiry())


class FakeMetaStore:
    """The store as one broker reaches it. Several can share a `server`.

    `before_txn` is called before each transaction, for a concurrent change.
    """

    def __init__(
        self,
        server: MetaServer | None = None,
        *,
        max_operations: int | None = None,
        timeout_s: float = 2.0,
    ) -> None:
        self.server = server or MetaServer()
        self.max_operations = max_operations
        self.txn_count = 0
        self.before_txn: Callable[[], None] = lambda: None
        # faults
        self.is_refused = False
        """Nothing listens there: a call fails at once, and was certainly not made."""
        self.delay_s: Callable[[], float] = lambda: 0.0
        """Called for each request and for each answer."""
        self.watch_delay_s: Callable[[], float] = lambda: 0.0
        """Called when a watch that has waited gets a change."""
        self.delays_each = False
        """What comes to a watch while it delays a change is delayed after that change."""
        self.loses_answer: Callable[[], bool] = lambda: False
        """Called for each answer: True loses it."""
        self._timeout_s = timeout_s
        self._linked = trio.Event()
        self._linked.set()
        self._is_heard = True
        self._watches: list[_FaultyWatch] = []

    def cut(self, *, is_heard: bool = False) -> None:
        """Lose all answers, and hold back what watches return. Lose all requests, too.

        With `is_heard` requests arrive, as over a link that is cut in one direction.
        """
        self._linked = trio.Event()
        self._is_heard = is_heard

    def heal(self) -> None:
        self._linked.set()

    def silence_watches(self) -> None:
        """Make each watch that is open now stay silent for ever."""
        for watch in self._watches:
            watch.is_silent = True

    def break_watches(self) -> None:
        """Break the connection of each watch that is open now."""
        for watch in self._watches:
            watch.break_off()

    def compact(self) -> None:
        """Forget all changes so far."""
        self.server.keys.compact()

    @property
    def values(self) -> dict[str, Versioned]:
        return self.server.keys.values

    @property
    def revision(self) -> int:
        return self.server.keys.revision

    def put(self, puts: Mapping[str, bytes | None]) -> None:
        """Change keys as another user of the store does."""
        self.server.keys.apply(puts)

    async def range(self, prefix: str) -> tuple[dict[str, Versioned], int]:
        keys = self.server.keys
        return await self._call(lambda: (keys.starting_with(prefix), keys.revision))

    async def txn(
        self,
        compares: Sequence[Compare],
        puts: Mapping[str, bytes | None],
        *,
        lease: int | None = None,
        lasting: Mapping[str, bytes | None] = NO_PUTS,
    ) -> tuple[bool, int]:
        check_operations(compares, {**puts, **lasting}, self.max_operations)
        wanted, kept = dict(puts), dict(lasting)

        def serve() -> tuple[bool, int]:
            keys = self.server.keys
            self.before_txn()
            self.txn_count += 1
            if lease is not None:
                keys.check_lease(lease)
            holds = keys.hold(compares)
            if holds:
                keys.apply(wanted, lease=lease, lasting=kept)
            return holds, keys.revision

        return await self._call(serve, lost=OutcomeUnknown)

    async def grant_lease(self, ttl_s: int) -> int:
        return await self._call(lambda: self.server.grant_lease(ttl_s))

    async def keep_lease(self, lease: int) -> int:
        def serve() -> int:
            self.server.keys.keep(lease, trio.current_time())
            return self.server.keys.revision

        return await self._call(serve)

    async def show_progress(self) -> None:
        """Do nothing: no other program writes to this store."""

    async def revoke_lease(self, lease: int) -> None:
        await self._call(lambda: self.server.keys.revoke(lease))

    @asynccontextmanager
    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[AsyncIterator[Changes]]:
        if self.is_refused:
            raise StoreUnreachable("the connection was refused")
        watch = _FaultyWatch(self, prefix, from_revision)
        self._watches.append(watch)
        try:
            yield watch
        finally:
            self._watches.remove(watch)

    async def linked(self) -> None:
        """Wait for the end of a cut."""
        await self._linked.wait()

    async def _call(
        self, serve: Callable[[], T], *, lost: Callable[[str], KafkaError] = StoreUnreachable
    ) -> T:
        await trio.lowlevel.checkpoint()
        if self.is_refused:
            raise StoreUnreachable("the connection was refused")
        with trio.move_on_after(self._timeout_s):
            if not (self._linked.is_set() or self._is_heard):
                await trio.sleep_forever()
            delay_s = self.delay_s()
            request = self.server.send(serve, delay_s)
            if delay_s:
                await trio.sleep(delay_s)
            self.server.advance()
            assert request.result is not None, request
            if self.loses_answer() or not self._linked.is_set():
                await trio.sleep_forever()
            if back_s := self.delay_s():
                await trio.sleep(back_s)
            return request.result.unwrap()
        raise lost(f"no answer within {self._timeout_s} s")


class _FaultyWatch(AsyncIterator[Changes]):
    """A watch over a connection that can be cut, slow, silent or broken."""

    def __init__(self, store: FakeMetaStore, prefix: str, from_revision: int) -> None:
        self.is_silent = False
        self._store = store
        self._inner = KeysWatch(
            store.server.keys,
            prefix,
            from_revision,
            expire=self._advance,
            next_expiry=store.server.next_event,
        )
        self._scope = trio.CancelScope()
        self._is_over = False

    def break_off(self) -> None:
        self._is_over = True
        self._scope.cancel()

    async def _advance(self) -> None:
        self._store.server.advance()

    async def __anext__(self) -> Changes:
        is_over, self._is_over = self._is_over, True  # it is over if the caller is cancelled, too
        with trio.CancelScope() as self._scope:
            if is_over:
                self._scope.cancel()
            began = trio.current_time()
            changes = await anext(self._inner)
            if trio.current_time() > began or self._store.delays_each:
                await trio.sleep(self._store.watch_delay_s())
            await self._store.linked()
            if self.is_silent:
                await trio.sleep_forever()
            self._is_over = False
            return changes
        raise StoreUnreachable("the connection of the watch was broken")
