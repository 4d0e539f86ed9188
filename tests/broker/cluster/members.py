"""A broker's part in the cluster without its network, and with a watch that is read when needed."""

import random
from collections.abc import Awaitable, Callable

from odradek.broker.cluster.controller import Controller
from odradek.broker.cluster.image import BrokerImage, ClusterImage
from odradek.broker.cluster.metadata import ClusterMetadata, find_cluster_id
from odradek.broker.cluster.session import Session
from odradek.broker.environment.env import MetaStore
from odradek.broker.partitions.partition import Partition

HERE = BrokerImage(node_id=1, host="127.0.0.1", port=9092)

Apply = Callable[[ClusterImage, ClusterImage], Awaitable[None]]


class ReadMetadata(ClusterMetadata):
    """Metadata that are read anew when somebody waits for them, so that no task must run."""

    def __init__(self, store: MetaStore) -> None:
        super().__init__(store)
        self.apply: Apply = nothing

    async def wait_reached(self, revision: int) -> ClusterImage:
        if self.image.revision < revision:
            await self.read_anew(self.apply)
        return self.image


async def nothing(_old: ClusterImage, _new: ClusterImage) -> None:
    """Apply nothing."""


async def metadata_of(store: MetaStore, rng: random.Random) -> ReadMetadata:
    metadata = ReadMetadata(store)
    await find_cluster_id(store, rng)
    await metadata.load()
    return metadata


async def has_nothing_to_leave() -> bool:
    return True


def member(
    store: MetaStore, metadata: ClusterMetadata, *, lead_anyway: Callable[[], Awaitable[None]]
) -> tuple[Session, Controller]:
    session = Session(
        store=store,
        metadata=metadata,
        directory_id="d",
        timeout_seconds=3,
        before_registering=has_nothing_to_leave,
    )
    controller = Controller(
        store=store,
        metadata=metadata,
        session=session,
        node_id=HERE.node_id,
        on_full_disk=lead_anyway,
    )
    return session, controller


class NoFollowers:
    async def follow(self, partition: Partition, leader: int) -> None:
        raise AssertionError("there is one broker")

    async def leave(self, partition: Partition) -> None:
        """Nothing is copied."""
