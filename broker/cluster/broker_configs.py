"""Settings of brokers and groups that change while brokers run: kept in the metadata store."""

from typing import Final

from odradek.broker.cluster.guarded_write import guarded_write
from odradek.broker.cluster.image import ClusterImage
from odradek.broker.cluster.metadata import ClusterMetadata
from odradek.broker.cluster.store import (
    broker_configs_key,
    group_configs_key,
    pack,
    read_configs,
)
from odradek.broker.config.changes import Alter
from odradek.broker.config.live import NO_CONFIGS, LiveConfig
from odradek.broker.environment.env import Compare, MetaStore
from odradek.broker.group.limits import GROUP_ID_MAX_BYTES
from odradek.protocol.errors import ErrorCode, KafkaError

ABSENT: Final = 0
"""The revision of a key that is not there."""
GROUPS_MAX: Final = 10_000
"""The number of groups that may have settings of their own. Every broker keeps them in memory."""


class BrokerConfigs:
    """The changed settings of all brokers and groups, as this broker reads and writes them."""

    def __init__(self, store: MetaStore, metadata: ClusterMetadata, settings: LiveConfig) -> None:
        self._store = store
        self._metadata = metadata
        self.settings = settings
        """This broker's own."""

    @property
    def image(self) -> ClusterImage:
        return self._metadata.image

    async def alter(self, broker: str, alter: Alter, *, validate_only: bool = False) -> None:
        """Change the settings of a broker, or of all brokers (`""`). They count on return.

        `alter` is applied to the changes that the store has. Raises KafkaError: what `alter`
        raises, or the store.
        """
        alter(self.image.broker_configs.get(broker, NO_CONFIGS))
        if validate_only:
            return
        with self._metadata.shielded():
            await self._metadata.wait_reached(await self._write(broker_configs_key(broker), alter))

    async def alter_group(
        self, group_id: str, alter: Alter, *, validate_only: bool = False
    ) -> None:
        """Change the settings of a consumer group, as `alter` those of a broker.

        Raises also INVALID_REQUEST for a name that cannot be, POLICY_VIOLATION for one too many.
        """
        known = self.image.group_configs
        if not group_id:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Default group resources are not allowed. Change the brokers' settings instead.",
            )
        if len(group_id.encode()) > GROUP_ID_MAX_BYTES:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"A group id has up to {GROUP_ID_MAX_BYTES} bytes."
            )
        changed = alter(known.get(group_id, NO_CONFIGS))
        if changed and group_id not in known and len(known) >= GROUPS_MAX:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{GROUPS_MAX} groups have settings of their own, the most there may be.",
            )
        if validate_only:
            return
        with self._metadata.shielded():
            await self._metadata.wait_reached(await self._write(group_configs_key(group_id), alter))

    async def _write(self, key: str, alter: Alter) -> int:
        """Return the revision in which the store has the changes."""
        while True:
            found, revision = await self._store.range(key)
            stored = found.get(key)
            # invariant settings 2: A change of settings is applied to what the store has, and again
            # if another broker was quicker.
            # plant a change of settings overwrites another broker's
            before = {} if stored is None else read_configs(key, stored)
            configs = alter(before)
            if configs == before:
                return revision
            same = Compare(key=key, mod_revision=stored.mod_revision if stored else ABSENT)
            value = pack(configs) if configs else None
            is_written, revision = await guarded_write(self._store, [same], {key: value})
            if is_written:
                return revision
