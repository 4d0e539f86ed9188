"""The metadata store with a stopwatch: the times of its calls, and the age of what a watch brought.

It stands between the broker and its store if there is a page of metrics, so that nothing else knows
of it.
"""

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, TypeVar

import trio

from odradek.broker.environment.env import NO_PUTS, Changes, Compare, MetaStore, Versioned
from odradek.broker.values.histogram import Histogram

T = TypeVar("T")

RANGE: Final = "range"
TXN: Final = "txn"
GRANT_LEASE: Final = "grant_lease"
KEEP_LEASE: Final = "keep_lease"
REVOKE_LEASE: Final = "revoke_lease"


class TimedStore:
    """A `MetaStore` that passes everything on."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self.seconds: Final = {
            op: Histogram() for op in (RANGE, TXN, GRANT_LEASE, KEEP_LEASE, REVOKE_LEASE)
        }
        """The times of calls, also of those that failed."""
        self._revision = 0
        """The latest revision that a watch has brought."""
        self._current_at = trio.current_time()

    @property
    def watch_age_seconds(self) -> float:
        """The time since the broker is known to have had everything that the store has.

        A silent store has nothing new if the lease of the broker was kept, and the answer had no
        later revision than the watch.
        """
        return trio.current_time() - self._current_at

    def note_watched(self, revision: int) -> None:
        """Note that a watch has brought a revision."""
        self._revision, self._current_at = revision, trio.current_time()

    @property
    def max_operations(self) -> int | None:
        return self._store.max_operations

    async def _measure(self, op: str, call: Awaitable[T]) -> T:
        since = trio.current_time()
        try:
            return await call
        finally:
            self.seconds[op].note(trio.current_time() - since)

    async def range(self, prefix: str) -> tuple[dict[str, Versioned], int]:
        return await self._measure(RANGE, self._store.range(prefix))

    async def txn(
        self,
        compares: Sequence[Compare],
        puts: Mapping[str, bytes | None],
        *,
        lease: int | None = None,
        lasting: Mapping[str, bytes | None] = NO_PUTS,
    ) -> tuple[bool, int]:
        call = self._store.txn(compares, puts, lease=lease, lasting=lasting)
        return await self._measure(TXN, call)

    async def grant_lease(self, ttl_s: int) -> int:
        return await self._measure(GRANT_LEASE, self._store.grant_lease(ttl_s))

    async def keep_lease(self, lease: int) -> int:
        asked_at = trio.current_time()
        revision = await self._measure(KEEP_LEASE, self._store.keep_lease(lease))
        if revision <= self._revision:
            self._current_at = max(self._current_at, asked_at)
        return revision

    async def show_progress(self) -> None:
        await self._store.show_progress()

    async def revoke_lease(self, lease: int) -> None:
        await self._measure(REVOKE_LEASE, self._store.revoke_lease(lease))

    def watch(
        self, prefix: str, from_revision: int
    ) -> AbstractAsyncContextManager[AsyncIterator[Changes]]:
        return self._watch(prefix, from_revision)

    @asynccontextmanager
    async def _watch(
        self, prefix: str, from_revision: int
    ) -> AsyncIterator[AsyncIterator[Changes]]:
        async with self._store.watch(prefix, from_revision) as changes:
            yield _Watch(self, changes)


class _Watch(AsyncIterator[Changes]):
    def __init__(self, store: TimedStore, changes: AsyncIterator[Changes]) -> None:
        self._store = store
        self._changes = changes

    async def __anext__(self) -> Changes:
        found = await anext(self._changes)
        self._store.note_watched(found.revision)
        return found
