"""Keys with revisions in memory, as etcd keeps them, with their recent changes and with leases.

The embedded store keeps its contents here. The simulated store of the tests has the same contents
and adds faults.

Each change of keys is one revision. The latest changes are kept for watches; `compact` and the
bound `CHANGES_MAX` forget the oldest ones. Leases end only when `expire` is called. A store whose
leases have a time calls it first in each call, and its watches when the next lease is due.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from itertools import takewhile
from math import inf
from typing import Final

import trio

from odradek.broker.environment.env import (
    NO_PUTS,
    Changes,
    Compacted,
    Compare,
    LeaseExpired,
    Versioned,
)
from odradek.late import dataclass

CHANGES_MAX: Final = 50_000
"""The number of changes of single keys that are kept for watches."""
INSERTED_MAX: Final = 64
"""New keys that are put in their places one by one. More of them are cheaper to sort."""


@dataclass(slots=True)
class _Lease:
    ttl_s: float
    expires_at: float


class KeysInMemory:
    def __init__(self) -> None:
        self.values: dict[str, Versioned] = {}
        self._sorted: list[str] = []
        """The keys of `values`, so that a range does not look at those outside of it."""
        self.revision = 0
        self._recent: deque[Changes] = deque()
        self._recent_keys = 0
        self._leases: dict[int, _Lease] = {}
        self._last_lease = 0
        self._lease_of: dict[str, int] = {}
        self._changed = trio.Event()

    def starting_with(self, prefix: str) -> dict[str, Versioned]:
        places = range(bisect_left(self._sorted, prefix), len(self._sorted))
        keys = map(self._sorted.__getitem__, places)
        return {
            key: self.values[key] for key in takewhile(lambda key: key.startswith(prefix), keys)
        }

    def hold(self, compares: Sequence[Compare]) -> bool:
        """Return True if all conditions are met."""
        return all(map(self._holds, compares))

    def _holds(self, compare: Compare) -> bool:
        found = self.values.get(compare.key)
        mod, create = (found.mod_revision, found.create_revision) if found else (0, 0)
        return compare.mod_revision in (None, mod) and compare.create_revision in (None, create)

    def restore(
        self,
        revision: int,
        puts: Mapping[str, bytes | None],
        versions: Mapping[str, Sequence[int]],
    ) -> None:
        """Apply a change of an earlier run: no watch can begin before it.

        A snapshot has `versions`: create and mod revision of each key.
        """
        self._set(revision, puts)
        for key, (create, mod) in versions.items():
            value = puts[key]
            assert value is not None, key
            self.values[key] = Versioned(value=value, create_revision=create, mod_revision=mod)

    def apply(
        self,
        puts: Mapping[str, bytes | None],
        *,
        lease: int | None = None,
        lasting: Mapping[str, bytes | None] = NO_PUTS,
    ) -> None:
        """Make the next revision. The keys of `lasting` are under no lease."""
        leased = puts.keys() if lease is not None else ()
        puts = {**puts, **lasting}
        before = self.values.keys() & puts.keys()
        self._set(self.revision + 1, puts)
        for key in puts:
            self._lease_of.pop(key, None)
            if lease is not None and key in leased and key in self.values:
                self._lease_of[key] = lease
        values = {key: self.values.get(key) for key in puts if key in before or key in self.values}
        self._recent.append(Changes(revision=self.revision, values=values))
        self._recent_keys += 1 + len(values)
        while self._recent_keys > CHANGES_MAX and len(self._recent) > 1:
            self._forget_oldest()
        self.wake()

    def _set(self, revision: int, puts: Mapping[str, bytes | None]) -> None:
        self.revision = revision
        new = [key for key, value in puts.items() if value is not None and key not in self.values]
        if len(new) > INSERTED_MAX:
            self._sorted.extend(new)
            self._sorted.sort()
        else:
            for key in new:
                insort(self._sorted, key)
        for key, value in puts.items():
            if value is None:
                if self.values.pop(key, None) is not None:
                    del self._sorted[bisect_left(self._sorted, key)]
                continue
            before = self.values.get(key)
            create = before.create_revision if before else revision
            self.values[key] = Versioned(value=value, create_revision=create, mod_revision=revision)

    # leases

    def grant(self, ttl_s: float, now: float) -> int:
        self._last_lease += 1
        self._leases[self._last_lease] = _Lease(ttl_s=ttl_s, expires_at=now + ttl_s)
        self.wake()
        return self._last_lease

    def keep(self, lease: int, now: float) -> None:
        """Renew a lease. Raises `LeaseExpired`."""
        self.check_lease(lease)
        self._leases[lease].expires_at = now + self._leases[lease].ttl_s

    def check_lease(self, lease: int) -> None:
        """Raise `LeaseExpired` if there is no such lease."""
        if lease not in self._leases:
            raise LeaseExpired(f"lease {lease} has expired")

    def is_leased(self, key: str) -> bool:
        return key in self._lease_of

    def revoke(self, lease: int) -> None:
        """End a lease if it exists. Its keys are deleted in one revision."""
        self._leases.pop(lease, None)
        attached = sorted(key for key, other in self._lease_of.items() if other == lease)
        if attached:
            self.apply(dict.fromkeys(attached))

    def expire(self, now: float) -> None:
        """End the leases that were not kept."""
        due = [lease for lease, kept in self._leases.items() if kept.expires_at <= now]
        for lease in due:
            self.revoke(lease)

    def next_expiry(self) -> float:
        """Return the time at which a lease expires unless it is kept."""
        return min((kept.expires_at for kept in self._leases.values()), default=inf)

    # watches

    def compact(self) -> None:
        """Forget all changes so far."""
        while self._recent:
            self._forget_oldest()
        self.wake()

    def _forget_oldest(self) -> None:
        self._recent_keys -= 1 + len(self._recent.popleft().values)

    def changes_at(self, revision: int) -> Changes:
        """Return what a revision changed. Raises `Compacted`."""
        oldest = self._recent[0].revision if self._recent else self.revision + 1
        if revision < oldest:
            raise Compacted(f"revision {revision} is forgotten; the oldest is {oldest}")
        return self._recent[revision - oldest]

    async def wait_changed(self) -> None:
        """Wait for a new revision, for a new lease, or for `wake`."""
        await self._changed.wait()

    def wake(self) -> None:
        """Wake the watches, which look again."""
        self._changed.set()
        self._changed = trio.Event()


class KeysWatch(AsyncIterator[Changes]):
    """A watch of `KeysInMemory`."""

    def __init__(
        self,
        keys: KeysInMemory,
        prefix: str,
        from_revision: int,
        *,
        expire: Callable[[], Awaitable[None]] | None = None,
        next_expiry: Callable[[], float] = lambda: inf,
    ) -> None:
        """`expire` is called when the next lease is due, at `next_expiry`."""
        self._keys = keys
        self._prefix = prefix
        self._next = from_revision
        self._expire = expire
        self._next_expiry = next_expiry
        self._is_new = True

    async def __anext__(self) -> Changes:
        await trio.lowlevel.checkpoint()
        while (changes := self._next_changes()) is None:
            with trio.move_on_at(self._next_expiry()) as waited:
                await self._keys.wait_changed()
            if waited.cancelled_caught and self._expire is not None:
                await self._expire()
        return changes

    def _next_changes(self) -> Changes | None:
        is_new, self._is_new = self._is_new, False
        if is_new and self._next > self._keys.revision:
            return Changes(revision=self._next - 1, values={})
        while self._next <= self._keys.revision:
            changes = self._keys.changes_at(self._next)
            self._next += 1
            values = {
                key: versioned
                for key, versioned in changes.values.items()
                if key.startswith(self._prefix)
            }
            if values:
                return Changes(revision=changes.revision, values=values)
        return None
