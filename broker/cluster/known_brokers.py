"""The brokers that have been in the cluster, and how one that will not come back is forgotten.

A registration ends with its lease. What was registered stays under `/known/ID`, so that a broker
that is away is shown as such, and not taken for one that never was.
"""

import logging
from typing import Final

from odradek.broker.cluster.guarded_write import guarded_write
from odradek.broker.cluster.metadata import ClusterMetadata
from odradek.broker.cluster.store import broker_key, known_broker_key
from odradek.broker.environment.env import Compare, MetaStore
from odradek.protocol.errors import ErrorCode, KafkaError

LOGGER: Final = logging.getLogger(__name__)


class KnownBrokers:
    """The known brokers of a cluster, as this broker changes them for its clients."""

    def __init__(self, store: MetaStore, metadata: ClusterMetadata) -> None:
        self._store = store
        self._metadata = metadata

    async def forget(self, node_id: int) -> None:
        """Forget a broker that is away and has no replica.

        Raises KafkaError: BROKER_ID_NOT_REGISTERED, INVALID_REQUEST for one that is alive or has a
        replica, and those of the metadata store.
        """
        while True:
            key = known_broker_key(node_id)
            found, revision = await self._store.range(key)
            await self._metadata.wait_reached(revision)
            self._check(node_id, is_known=key in found)
            # It may register at this moment.
            # invariant administration 6: A broker is known from its first registration on, and is
            # forgotten only while it is away and has no replica.
            # plant a broker that is away and has a replica is forgotten
            # plant a broker that comes back while it is forgotten is not known
            # plant what stays of a registration ends with its lease
            same = Compare(key=key, mod_revision=found[key].mod_revision)
            is_away = Compare(key=broker_key(node_id), mod_revision=0)
            is_written, revision = await guarded_write(self._store, [same, is_away], {key: None})
            await self._metadata.wait_reached(revision)
            if is_written:
                LOGGER.info("broker %d, which was away, is forgotten", node_id)
                return

    def _check(self, node_id: int, *, is_known: bool) -> None:
        image = self._metadata.image
        if image.broker(node_id) is not None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Broker {node_id} is alive. Move its replicas away, stop it, and then forget it.",
            )
        if not is_known:
            raise KafkaError(
                ErrorCode.BROKER_ID_NOT_REGISTERED,
                f"Broker ID {node_id} is not currently registered.",
            )
        places = [
            f"{name}-{index}"
            for name, topic in image.topics.items()
            for index, partition in enumerate(topic.partitions)
            if node_id in partition.replicas
        ]
        if places:
            others = f" and {len(places) - 1} more" if len(places) > 1 else ""
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Broker {node_id} has a replica of {places[0]}{others}. Move its replicas to "
                "other brokers first.",
            )
