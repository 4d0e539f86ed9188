"""The peers of a broker: today only itself, without a socket.

A broker asks another by a request to its handler. It hands itself the same request object, so that
the code above does not depend on the number of brokers.
"""

from typing import Final

from odradek.broker.api.context import Core, RequestContext
from odradek.broker.api.markers import write_txn_markers
from odradek.broker.topic_partition import TopicPartition
from odradek.protocol.apis.txn import (
    WRITE_TXN_MARKERS,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.protocol.errors import KafkaError

CLIENT_ID: Final = "broker"
NO_EPOCH: Final = -1


class InProcessPeer:
    """This broker as its own peer."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def leader_of(self, partition: TopicPartition) -> int | None:
        """Return the node id of a partition's leader; None if the partition does not exist."""
        topic = self._core.cluster.image.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition].leader

    async def send(
        self, broker_id: int, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        """Send markers to their leader."""
        assert broker_id == self._core.config.node_id, broker_id
        context = RequestContext(
            core=self._core,
            api_version=WRITE_TXN_MARKERS.max_version,
            client_id=CLIENT_ID,
            host="",
            is_in_process=True,
        )
        return await write_txn_markers(context, request)

    async def coordinator_epoch_of(self, partition: TopicPartition, producer_id: int) -> int:
        """Return the highest coordinator epoch of the producer's markers in a partition."""
        try:
            producers = self._core.partitions.get(*partition).producers()
        except KafkaError:
            return NO_EPOCH
        epochs = [p.coordinator_epoch for p in producers if p.producer_id == producer_id]
        return max(epochs, default=NO_EPOCH)
