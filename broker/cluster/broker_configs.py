"""Settings of brokers that change while they run: kept in the metadata store, read by a watch."""

from typing import Final

from odradek.broker.cluster.image import ClusterImage
from odradek.broker.cluster.metadata import ClusterMetadata
from odradek.broker.cluster.store import broker_configs_key, pack, unpack
from odradek.broker.config.changes import Alter
from odradek.broker.config.live import NO_CONFIGS, LiveConfig
from odradek.broker.env import Compare, MetaStore
from odradek.broker.guarded_write import guarded_write

ABSENT: Final = 0
"""The revision of a key that is not there."""


class BrokerConfigs:
    """The changed settings of all brokers, as this broker reads and writes them."""

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
            await self._metadata.reached(await self._write(broker, alter))

    async def _write(self, broker: str, alter: Alter) -> int:
        """Return the revision in which the store has the changes."""
        key = broker_configs_key(broker)
        while True:
            found, revision = await self._store.range(key)
            stored = found.get(key)
            before = {} if stored is None else unpack(stored.value)
            configs = alter(before)
            if configs == before:
                return revision
            same = Compare(key=key, mod_revision=stored.mod_revision if stored else ABSENT)
            value = pack(configs) if configs else None
            is_written, revision = await guarded_write(self._store, [same], {key: value})
            if is_written:
                return revision
