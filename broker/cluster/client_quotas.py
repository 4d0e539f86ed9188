"""Quotas, as a broker changes them in the metadata store.

A change compares the keys that it writes. It is made again from what the store has then if another
broker was quicker. It is answered when this broker's image has it; the other brokers have it as
soon as their watch of the store brings it.
"""

from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import Final

from odradek.broker.cluster.guarded_write import guarded_write, unchanged_since
from odradek.broker.cluster.metadata import ClusterMetadata
from odradek.broker.cluster.quota_keys import (
    QUOTAS,
    pack_values,
    quota_key,
    read_values,
)
from odradek.broker.cluster.unaware_brokers import IGNORES_QUOTAS, check_all_know
from odradek.broker.config.live import LiveConfig
from odradek.broker.environment.env import MetaStore, Unreadable, Versioned
from odradek.broker.environment.turns import Turns
from odradek.broker.quotas.accounts import QuotaAccounts
from odradek.broker.quotas.entities import Entity, QuotaTable
from odradek.protocol.errors import ErrorCode, KafkaError

ENTITIES_MAX: Final = 10_000
"""The number of entities with quotas. Every broker keeps them in memory."""
KEYS_AT_ONCE: Final = 50
"""The keys that are written together, which etcd limits."""

Changes = Mapping[str, float | None]
"""New values of an entity by the kind of quota; None removes one."""


class ClientQuotas:
    """The quotas of the cluster, and the changes that this broker makes."""

    def __init__(self, store: MetaStore, metadata: ClusterMetadata, settings: LiveConfig) -> None:
        self._store = store
        self._metadata = metadata
        self.accounts = QuotaAccounts(lambda: metadata.newest_image.quotas, lambda: settings.now)
        """What this broker's clients have used."""

    @property
    def table(self) -> QuotaTable:
        return self._metadata.image.quotas

    async def alter(self, changes: Mapping[Entity, Changes]) -> None:
        """Change quotas. They count on return, on this broker.

        Raises KafkaError: there would be too many, a broker would not enforce them, or the store
        refuses.
        """
        if any(value is not None for kinds in changes.values() for value in kinds.values()):
            check_all_know(self._metadata.image.without_quotas, IGNORES_QUOTAS)
        turns = Turns()
        with self._metadata.shielded():
            while True:
                found, revision = await self._store.range(QUOTAS)
                writes = await self._writes(changes, found, turns)
                is_whole = True
                items = iter(writes.items())
                while some := dict(islice(items, KEYS_AT_ONCE)):
                    compares = [unchanged_since(key, found) for key in some]
                    is_written, at = await guarded_write(self._store, compares, some)
                    revision = max(revision, at)
                    is_whole = is_whole and is_written
                if is_whole:
                    await self._metadata.wait_reached(revision)
                    return

    async def _writes(
        self, changes: Mapping[Entity, Changes], found: Mapping[str, Versioned], turns: Turns
    ) -> dict[str, bytes | None]:
        """Return what to write. Raises KafkaError if there would be too many entities."""
        writes: dict[str, bytes | None] = {}
        count = len(found)
        for entity, kinds in changes.items():
            await turns.take(1 + len(kinds))
            key = quota_key(entity)
            stored = found.get(key)
            before: dict[str, float] = {}
            if stored is not None:
                with suppress(Unreadable):  # such quotas do not count, and are replaced
                    before = read_values(key, stored)
            altered = {**before, **kinds}
            after = {kind: value for kind, value in altered.items() if value is not None}
            # What is stored and has no readable value is removed, too.
            if after == before and (stored is None or before):
                continue
            count += (stored is None) - (not after)
            writes[key] = pack_values(after) if after else None
        if count > max(ENTITIES_MAX, len(found)):
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"There would be quotas of {count} entities, and the most are {ENTITIES_MAX}. Use "
                "those of defaults.",
            )
        return writes
