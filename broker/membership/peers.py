"""The other brokers, and this one, as a broker asks them.

A request to another broker goes to its listener for brokers, over one connection that is opened
when it is first needed and again when it was lost. To itself a broker hands the same request object
to the same handler, without a socket: the code above does not depend on the number of brokers.

Where a request has to go follows from the image: to the leader of a partition, or to the leader of
the partition of `__transaction_state` that keeps a transactional id.
"""

from collections.abc import Callable, Collection
from dataclasses import field
from typing import Any, Final, TypeVar
from uuid import UUID

import trio

from odradek.broker.api import PEER_HANDLERS
from odradek.broker.api.context import Core, RequestContext
from odradek.broker.cluster.image import NO_LEADER, BrokerImage, ClusterImage
from odradek.broker.cluster.peer_connection import BrokerConnection, PeerUnreachable, open_peer
from odradek.broker.cluster.peer_network import PeerNetwork
from odradek.broker.cluster.store import partition_key, read_identity, topic_key
from odradek.broker.environment.env import MetaStore
from odradek.broker.txn.admission import CoordinatorAnswer
from odradek.broker.txn.markers import EarlyMarkers
from odradek.broker.txn.transaction import ProducerIdAndEpoch
from odradek.broker.values.topic_partition import TopicIdPartition, TopicPartition
from odradek.client.errors import OdradekError
from odradek.late import dataclass
from odradek.protocol.api import Api
from odradek.protocol.apis.transactions import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
)
from odradek.protocol.apis.txn import (
    ADD_PARTITIONS_TO_TXN,
    WRITE_TXN_MARKERS,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    WritableTxnMarker,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC

Request = TypeVar("Request")
Response = TypeVar("Response")

CLIENT_ID: Final = "broker"
NO_EPOCH: Final = -1
TIMEOUT_MS: Final = 5_000
"""The time for an answer of another broker. Its caller asks again, maybe another broker."""


@dataclass(slots=True)
class _Link:
    """The connection to one broker, or the attempt to open it."""

    broker: BrokerImage
    opened: trio.Event = field(default_factory=trio.Event)
    connection: BrokerConnection | None = None
    error: str = ""


class Peers:
    """All brokers of the cluster, as this one asks them."""

    def __init__(
        self,
        *,
        node_id: int,
        image: Callable[[], ClusterImage],
        coordinator_partition_for: Callable[[str], int],
        network: PeerNetwork,
        store: MetaStore,
    ) -> None:
        """`coordinator_partition_for` returns the partition that keeps a transactional id."""
        self._node_id = node_id
        self._image = image
        self._coordinator_partition_for = coordinator_partition_for
        self._network = network
        self._store = store
        self._links: dict[int, _Link] = {}
        self._running: tuple[Core, trio.Nursery] | None = None

    async def run(
        self, core: Core, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Keep connections until cancelled. `core` answers requests to this broker itself."""
        async with trio.open_nursery() as nursery:
            self._running = core, nursery
            task_status.started()
            await trio.sleep_forever()

    # markers

    def leader_of(self, partition: TopicIdPartition) -> int | None:
        """Return the leader of a partition, -1 if it has none; None if the image has no such."""
        image = self._image()
        topic = image.topics.get(partition.topic)
        if topic is None or not partition.may_be_of(topic.topic_id):
            return None
        found = image.partition(partition.topic, partition.partition)
        return None if found is None else found.leader

    async def is_gone(self, partition: TopicIdPartition) -> bool:
        """Return True if the metadata store says that the partition is deleted.

        A topic of the same name that was made since is another one, with other partitions. The
        image alone may lag: a marker that is left out would let the transaction hang for good
        (KAFKA-20734).
        """
        topic, where = topic_key(partition.topic), partition_key(*partition.by_name)
        try:
            topics, _ = await self._store.range(topic)
            partitions, _ = await self._store.range(where)
        except KafkaError:
            return False
        if topic not in topics:
            return True
        # invariant markers 2
        topic_id, is_whole = read_identity(topics[topic])
        return not partition.may_be_of(topic_id) or (is_whole and where not in partitions)

    async def send(
        self, broker_id: int, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        """Send markers to their leader. Raises KafkaError."""
        return await self._ask(broker_id, WRITE_TXN_MARKERS, request)

    def append_early(self, state_index: int, marker: WritableTxnMarker) -> EarlyMarkers | None:
        """Append markers of a decision that is not durable yet, if all logs are only here."""
        core = self._started()[0]
        if not core.partitions.is_journaled:
            return None
        try:
            PEER_HANDLERS[WRITE_TXN_MARKERS.key]  # which imports what serves it
        except ProtocolError:
            return None
        from odradek.broker.api.marker_writes import append_early

        context = self._context_here(WRITE_TXN_MARKERS)
        return append_early(context, state_index, marker)

    async def coordinator_epoch_of(self, partition: TopicIdPartition, producer_id: int) -> int:
        """Return the highest coordinator epoch of the producer's markers in a partition."""
        leader = self.leader_of(partition)
        request = DescribeProducersRequest(
            topics=(
                DescribeProducersTopicRequest(
                    name=partition.topic, partition_indexes=(partition.partition,)
                ),
            )
        )
        try:
            answer = await self._ask(
                NO_LEADER if leader is None else leader, DESCRIBE_PRODUCERS, request
            )
        except KafkaError:
            return NO_EPOCH
        epochs = [
            producer.coordinator_epoch
            for topic in answer.topics
            for described in topic.partitions
            for producer in described.active_producers
            if producer.producer_id == producer_id
        ]
        return max(epochs, default=NO_EPOCH)

    # transactions that another broker coordinates

    def coordinates_elsewhere(self, transactional_id: str) -> bool:
        """Return True if another broker coordinates the id, or none does now."""
        return self._coordinator_of(transactional_id) != self._node_id

    def _coordinator_of(self, transactional_id: str) -> int:
        index = self._coordinator_partition_for(transactional_id)
        found = self._image().partition(TRANSACTION_STATE_TOPIC, index)
        return NO_LEADER if found is None else found.leader

    async def add_partitions(
        self,
        *,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicIdPartition],
        is_check: bool,
    ) -> CoordinatorAnswer:
        """Ask the coordinator to add partitions to a transaction, or to check that it has them."""
        topics: dict[tuple[str, bytes], list[int]] = {}
        by_name = {}
        for partition in partitions:
            by_name[partition.by_name] = partition
            named = (partition.topic, partition.id_bytes)
            topics.setdefault(named, []).append(partition.partition)
        request = AddPartitionsToTxnRequest(
            transactions=(
                AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    verify_only=is_check,
                    topics=tuple(
                        AddPartitionsToTxnTopic(
                            name=name,
                            partitions=tuple(indexes),
                            topic_id=UUID(bytes=id_bytes),
                        )
                        for (name, id_bytes), indexes in topics.items()
                    ),
                ),
            )
        )
        try:
            response = await self._ask(
                self._coordinator_of(transactional_id), ADD_PARTITIONS_TO_TXN, request
            )
        except KafkaError as error:
            return CoordinatorAnswer(dict.fromkeys(partitions, error.code), NO_EPOCH)
        codes = dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        epoch = NO_EPOCH
        for result in response.results_by_transaction:
            epoch = result.coordinator_epoch
            for topic in result.topic_results:
                for each in topic.results_by_partition:
                    partition = by_name[TopicPartition(topic.name, each.partition_index)]
                    codes[partition] = _code_of(each.partition_error_code)
        return CoordinatorAnswer(codes, epoch)

    # requests

    async def _ask(self, broker_id: int, api: Api[Request, Response], request: Request) -> Response:
        """Send a request to a broker, and return its answer. Raises KafkaError."""
        if broker_id == self._node_id:
            return await self._ask_here(api, request)
        try:
            connection = await self._connected(broker_id)
            version = connection.version_of(api)
            return await connection.request(api, version, request)
        except (PeerUnreachable, OdradekError) as error:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"broker {broker_id} does not answer: {error}"
            ) from error

    def _context_here(self, api: Api[Any, Any]) -> RequestContext:
        return RequestContext(
            core=self._started()[0],
            api_version=api.max_version,
            client_id=CLIENT_ID,
            host="",
            is_from_broker=True,
        )

    async def _ask_here(self, api: Api[Request, Response], request: Request) -> Response:
        context = self._context_here(api)
        try:
            handler = PEER_HANDLERS[api.key]
        except ProtocolError as error:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        answer: Any = await handler(context, request)
        response: Response = answer
        return response

    def _started(self) -> tuple[Core, trio.Nursery]:
        assert self._running is not None, "`run` has not been started"
        return self._running

    async def _connected(self, broker_id: int) -> BrokerConnection:
        """Return the connection to a broker. Open it if there is none. Raises `PeerUnreachable`."""
        broker = self._image().broker(broker_id)
        if broker is None:
            raise PeerUnreachable(f"broker {broker_id} is not there")
        link = self._links.get(broker_id)
        if link is None or link.broker != broker or _is_lost(link):
            if link is not None and link.connection is not None:
                link.connection.close()
            link = self._links[broker_id] = _Link(broker)
            _, nursery = self._started()
            nursery.start_soon(self._open, link, nursery)
        await link.opened.wait()
        if link.connection is None:
            raise PeerUnreachable(link.error)
        return link.connection

    async def _open(self, link: _Link, nursery: trio.Nursery) -> None:
        """Open a connection, in a task of its own: several requests may wait for it."""
        try:
            link.connection = await open_peer(
                self._network,
                link.broker,
                nursery,
                node_id=self._node_id,
                timeout_ms=TIMEOUT_MS,
            )
        except PeerUnreachable as error:
            link.error = str(error)
        finally:
            link.opened.set()


def _is_lost(link: _Link) -> bool:
    """Return True if a connection was opened and lost, or could not be opened."""
    if link.connection is None:
        return link.opened.is_set()
    return link.connection.is_closed


def _code_of(code: int) -> ErrorCode:
    """Return an error code of another broker. Its image may lag: a new topic comes to it soon."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode(code)
