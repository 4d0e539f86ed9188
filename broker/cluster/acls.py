"""Entries of access control, as a broker adds them to the metadata store and removes them.

A change compares the keys that it writes. It is made again from what the store has then if another
broker was quicker. It is answered when this broker's image has it; the other brokers have it as
soon as their watch of the store brings it.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from odradek.broker.cluster.acl_keys import (
    ACLS,
    CLOSED,
    acl_key,
    pack_entries,
    read_entries,
    resource_of_key,
)
from odradek.broker.cluster.guarded_write import guarded_write, unchanged_since
from odradek.broker.cluster.image import ClusterImage
from odradek.broker.cluster.metadata import ClusterMetadata
from odradek.broker.cluster.unaware_brokers import IGNORES_ACLS, check_all_know
from odradek.broker.environment.env import MetaStore, Unreadable, Versioned
from odradek.broker.environment.turns import Turns
from odradek.broker.security.acls import AclEntry, AclFilter, ResourcePattern
from odradek.protocol.errors import ErrorCode, KafkaError

ENTRIES_MAX: Final = 100_000
"""The number of entries that there may be. Every broker keeps them in memory."""
VALUE_MAX_BYTES: Final = 256 * 1024
"""The size of all entries of one resource pattern in the store, which bounds what it takes."""
KEYS_AT_ONCE: Final = 50
WRITE_MAX_BYTES: Final = 512 * 1024
"""The size of one write."""
UNREADABLE: Final = (CLOSED,)
"""Stands for stored entries that cannot be read. Entries that were stored may be equal to it, so it
is recognised by its identity."""

Binding = tuple[ResourcePattern, AclEntry]
Acls = Mapping[ResourcePattern, Sequence[AclEntry]]
Change = Callable[[Acls, Turns], Awaitable[Acls]]
"""Returns the entries of the patterns that change, from all that there are. Empty: none is left."""


class ClusterAcls:
    """The entries of the cluster, and the changes that this broker makes."""

    def __init__(self, store: MetaStore, metadata: ClusterMetadata) -> None:
        self._store = store
        self._metadata = metadata

    @property
    def image(self) -> ClusterImage:
        return self._metadata.image

    def check_all_know(self) -> None:
        """Raise KafkaError while a broker of the cluster would not enforce an entry."""
        check_all_know(self.image.without_acls, IGNORES_ACLS)

    async def create(self, bindings: Sequence[Binding]) -> None:
        """Add entries; one that is there stays. They count on return, on this broker.

        Raises KafkaError: there would be too many, those of a pattern cannot be read, a broker
        would not enforce them, or the store refuses.
        """
        self.check_all_know()
        added: dict[ResourcePattern, dict[AclEntry, None]] = {}
        for resource, entry in bindings:
            added.setdefault(resource, {})[entry] = None

        async def change(acls: Acls, turns: Turns) -> Acls:
            changed = {}
            for resource, entries in added.items():
                await turns.take(1 + len(entries))
                before = acls.get(resource, ())
                if before is UNREADABLE:
                    raise _unreadable(resource)
                after = tuple(dict.fromkeys((*before, *entries)))
                if len(after) != len(before):
                    changed[resource] = after
            count = sum(map(len, {**acls, **changed}.values()))
            if changed and count > ENTRIES_MAX:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    f"There would be {count} ACL entries, and the most are {ENTRIES_MAX}. Use "
                    "prefixed patterns.",
                )
            return changed

        await self._change(change)

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[Binding]]:
        """Remove what filters select, and return of each what it has selected. Raises KafkaError.

        They do not count any more on return, on this broker. Entries that cannot be read are shown
        as `CLOSED`, and a filter that selects it removes them.
        """
        deleted: list[dict[Binding, None]] = [{} for _ in filters]

        async def change(acls: Acls, turns: Turns) -> Acls:
            changed = {}
            for resource, entries in acls.items():
                await turns.take(1 + len(filters) + len(entries))
                chosen = [
                    (found, wanted)
                    for found, wanted in zip(deleted, filters, strict=True)
                    if wanted.has_resource(resource)
                ]
                if not chosen:
                    continue
                left = []
                for entry in entries:
                    await turns.take(len(chosen))
                    by = [found for found, wanted in chosen if wanted.has_entry(entry)]
                    for found in by:
                        found[resource, entry] = None
                    if not by:
                        left.append(entry)
                if len(left) != len(entries):
                    changed[resource] = left
            return changed

        await self._change(change)
        return [list(each) for each in deleted]

    async def _change(self, change: Change) -> None:
        turns = Turns()
        with self._metadata.shielded():
            while True:
                found, revision = await self._store.range(ACLS)
                changed = await change(await _read(found, turns), turns)
                is_whole = True
                for some in _writes(changed):
                    compares = [unchanged_since(key, found) for key in some]
                    is_written, at = await guarded_write(self._store, compares, some)
                    revision = max(revision, at)
                    is_whole = is_whole and is_written
                if is_whole:
                    await self._metadata.wait_reached(revision)
                    return


async def _read(found: Mapping[str, Versioned], turns: Turns) -> Acls:
    """Return the entries in the range `/acls/`. Keys of no resource are left out."""
    acls: dict[ResourcePattern, Sequence[AclEntry]] = {}
    for key, stored in found.items():
        await turns.take()
        with suppress(Unreadable):
            resource = resource_of_key(key)
            # A change must not take the place of entries that may deny.
            acls[resource] = UNREADABLE
            acls[resource] = read_entries(key, stored)
    return acls


def _unreadable(resource: ResourcePattern) -> KafkaError:
    return KafkaError(
        ErrorCode.POLICY_VIOLATION,
        f"This broker cannot read the ACL entries of the {resource.pattern.name} pattern "
        f"{resource.name!r} of type {resource.kind.name}: a later version wrote them, or they are "
        "damaged. They deny everything. Upgrade this broker, or remove the entry that denies ALL "
        "to User:* and add all entries of the pattern anew.",
    )


def _writes(changed: Acls) -> Iterator[dict[str, bytes | None]]:
    """Yield the writes of a change, some keys at a time. Raises KafkaError for a large value."""
    values = {
        acl_key(resource): pack_entries(entries) if entries else None
        for resource, entries in changed.items()
    }
    for value in values.values():
        if value is not None and len(value) > VALUE_MAX_BYTES:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"The ACL entries of one resource pattern would take {len(value)} bytes, and the "
                f"most are {VALUE_MAX_BYTES}.",
            )
    some: dict[str, bytes | None] = {}
    size_bytes = 0
    for key, value in values.items():
        if len(some) >= KEYS_AT_ONCE or size_bytes > WRITE_MAX_BYTES:
            yield some
            some, size_bytes = {}, 0
        some[key] = value
        size_bytes += len(key) + len(value or b"")
    if some:
        yield some
