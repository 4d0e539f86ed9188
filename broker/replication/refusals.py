"""A broker whose port refuses connections has died: nobody need wait for the end of its lease.

The controller keeps a connection to every broker, and every broker one to the controller. When such
a connection is lost and the next is refused, and refused again, the process is gone: its
registration is deleted, and the office of the controller with it. Both are guarded by the epochs
that were seen, so a broker that has registered anew meanwhile keeps its place.

Only a refusal counts. Silence may mean that this broker is the one that is cut off: then the leases
decide.
"""

import logging
from collections.abc import Mapping
from typing import Final

import trio

from odradek.broker.cluster.image import BrokerImage, ClusterImage
from odradek.broker.cluster.metadata import ClusterMetadata
from odradek.broker.cluster.peer_connection import PeerUnreachable, open_peer
from odradek.broker.cluster.peer_network import PeerNetwork
from odradek.broker.cluster.session import Session
from odradek.broker.cluster.store import CONTROLLER, broker_key
from odradek.broker.environment.env import Compare, MetaStore
from odradek.protocol.errors import KafkaError

LOGGER: Final = logging.getLogger(__name__)
RETRY_SECONDS: Final = 0.1
REFUSALS: Final = 2
"""The refusals in a row after which a broker counts as dead."""
TIMEOUT_MS: Final = 3_000


class Refusals:
    """Watches the processes of other brokers, and removes those that are gone."""

    def __init__(
        self,
        *,
        network: PeerNetwork,
        store: MetaStore,
        metadata: ClusterMetadata,
        session: Session,
        node_id: int,
    ) -> None:
        self._network = network
        self._store = store
        self._metadata = metadata
        self._session = session
        self._node_id = node_id

    async def run(self) -> None:
        """Watch until cancelled."""
        watched: dict[BrokerImage, trio.CancelScope] = {}
        async with trio.open_nursery() as nursery:
            while True:
                image = self._metadata.image
                wanted = self._wanted(image)
                for broker in [each for each in watched if each not in wanted]:
                    watched.pop(broker).cancel()
                for broker in wanted:
                    if broker not in watched:
                        scope = watched[broker] = trio.CancelScope()
                        nursery.start_soon(self._watch, broker, scope)
                await self._metadata.wait_changed(image)

    def _wanted(self, image: ClusterImage) -> Mapping[BrokerImage, None]:
        """Return the brokers that this one watches."""
        is_controller = image.controller_id == self._node_id
        return {
            broker: None
            for broker in image.brokers
            if broker.node_id != self._node_id
            and (is_controller or broker.node_id == image.controller_id)
        }

    async def _watch(self, broker: BrokerImage, scope: trio.CancelScope) -> None:
        refusals = 0
        with scope:
            while refusals < REFUSALS:
                error = await self._connected_until(broker)
                refusals = refusals + 1 if error is not None and error.is_refused else 0
                await trio.sleep(RETRY_SECONDS)
            await self._remove(broker)

    async def _connected_until(self, broker: BrokerImage) -> PeerUnreachable | None:
        """Connect to a broker and return when the connection is lost, or why there was none."""
        failure = None
        async with trio.open_nursery() as nursery:
            try:
                await open_peer(
                    self._network, broker, nursery, node_id=self._node_id, timeout_ms=TIMEOUT_MS
                )
            except PeerUnreachable as error:
                failure = error
        return failure

    async def _remove(self, broker: BrokerImage) -> None:
        """Delete what a dead broker has in the metadata store."""
        image = self._metadata.image
        key = broker_key(broker.node_id)
        compares = [self._session.guard, Compare(key=key, create_revision=broker.epoch)]
        puts: dict[str, bytes | None] = {key: None}
        if image.controller_id == broker.node_id:
            epoch = image.controller_epoch
            compares.append(Compare(key=CONTROLLER, create_revision=epoch))
            puts[CONTROLLER] = None
        LOGGER.info("broker %d refuses connections: it has died", broker.node_id)
        try:
            _, revision = await self._store.txn(compares, puts)
            self._metadata.note_revision(revision)
        except KafkaError as error:
            LOGGER.warning("broker %d could not be removed: %s", broker.node_id, error)
