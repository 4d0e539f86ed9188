"""The changed settings of brokers in a data directory that no broker uses."""

from collections.abc import Iterator, Set

from odradek.broker.cluster.node_identity import NODE
from odradek.broker.cluster.store import (
    BROKER_CONFIGS,
    CLUSTER,
    check_metadata_format,
    pack,
    unpack,
)
from odradek.broker.cluster.store_embedded import NAMES, EmbeddedStore
from odradek.broker.config.live import ALL_BROKERS
from odradek.broker.environment.env import Disk


class NothingStored(Exception):
    """The directory has no metadata, or no such setting: one sentence for a person."""


class StoredSettings:
    """The changed settings, by broker; those of all brokers are under `""`. Make it with `open`."""

    def __init__(self, directory: str, store: EmbeddedStore) -> None:
        self._directory = directory
        self._store = store
        self.by_broker: dict[str, dict[str, str]] = {}

    @classmethod
    async def open(cls, disk: Disk, directory: str) -> "StoredSettings":
        """Read the metadata. Raises `NothingStored`, `DamagedStore`, ConfigError, OSError."""
        if disk.exists(f"{directory}/{NODE}"):
            raise NothingStored(
                f"{directory} is that of a broker of a cluster, whose settings are in etcd: use "
                "odradek config with any of its brokers, from the machine of that broker if "
                f"max.connections is in the way, or delete {BROKER_CONFIGS}ID below "
                "etcd.key.prefix with etcdctl."
            )
        if not any(disk.exists(f"{directory}/{name}") for name in NAMES):
            raise NothingStored(f"{directory} has no {NAMES[0]}: no broker has used it.")
        stored = cls(directory, await EmbeddedStore.open(disk, directory))
        try:
            await stored._check_format()
            await stored._read()
        except BaseException:
            stored.close()
            raise
        return stored

    async def _check_format(self) -> None:
        found, _ = await self._store.range(CLUSTER)
        if CLUSTER in found:
            check_metadata_format(found[CLUSTER])

    async def _read(self) -> None:
        found, _ = await self._store.range(BROKER_CONFIGS)
        self.by_broker = {
            key.removeprefix(BROKER_CONFIGS): unpack(stored.value) for key, stored in found.items()
        }

    # invariant settings 3
    async def unset(self, names: Set[str]) -> None:
        """Remove settings of every broker. Raises `NothingStored` for one that is not there."""
        there = {name for configs in self.by_broker.values() for name in configs}
        missing = sorted(names - there)
        if missing:
            raise NothingStored(
                f"{', '.join(missing)} is not among the changed settings; nothing was removed."
            )
        puts: dict[str, bytes | None] = {}
        for broker, configs in self.by_broker.items():
            kept = {name: text for name, text in configs.items() if name not in names}
            if kept != configs:
                puts[f"{BROKER_CONFIGS}{broker}"] = pack(kept) if kept else None
        if puts:
            await self._store.txn([], puts)
            await self._read()

    def lines(self) -> Iterator[str]:
        """Yield what a person reads about the settings."""
        if not self.by_broker:
            yield f"No setting of a broker is changed in {self._directory}."
        for broker, configs in sorted(self.by_broker.items()):
            yield "All brokers:" if broker == ALL_BROKERS else f"Broker {broker}:"
            for name, text in sorted(configs.items()):
                yield f"  {name}={text}"

    def close(self) -> None:
        self._store.close()
