"""The client for asyncio programs: the same names, the same arguments, the same `await`.

    async with Producer("127.0.0.1:9092", transactional_id="refunds-0") as producer:
        async with producer.transaction() as transaction:
            await transaction.send("refunds", b"...")

The clients run on trio in the daemon thread of the blocking clients (`blocking/loop.py`), all of a
process in one. A client belongs to no event loop: the event loops of several threads may use it. It
cannot be used after a fork: make a new one in the child process.

If a task is cancelled, by `asyncio.timeout` too, the call that it waits for is cancelled in that
thread, and what was sent before stays sent. Callbacks of the program (`on_delivery`) are called in
the thread of the event loop that passed them. Serializers, deserializers and `on_error`
run in the thread of the event loop, too. The functions in options (`partitioner`, `connect`,
`offload`) are called in trio's thread.
"""

from odradek.client.administration.descriptions import (
    HangingTransaction,
    PartitionProducers,
    Pin,
    ProducerDescription,
    ProducerIdAndEpoch,
    TransactionDescription,
    TransactionListing,
)
from odradek.client.administration.group_descriptions import (
    GroupDescription,
    GroupLag,
    GroupListing,
    GroupMemberDescription,
    OffsetReset,
)
from odradek.client.administration.moves import PartitionMove
from odradek.client.administration.resets import ResetTo
from odradek.client.aio.admin import Admin
from odradek.client.aio.consumer import Consumer
from odradek.client.aio.delivery import Delivery
from odradek.client.aio.producer import Producer
from odradek.client.aio.transaction import Transaction
from odradek.client.aio.transaction_group import TransactionGroup
from odradek.client.consuming.deserializing import PoisonRecord
from odradek.client.errors import (
    Aborted,
    BufferFull,
    Closed,
    Disconnected,
    Fatal,
    Fenced,
    OdradekError,
    OffsetOutOfRange,
    Rebalanced,
    Refused,
    Retriable,
    TimedOut,
)
from odradek.client.producing.detached import DetachedTransaction
from odradek.client.producing.prepared import Completion, PreparedTransaction
from odradek.client.types import (
    BrokerDescription,
    ClusterDescription,
    ConfigEntry,
    ConsumerRecord,
    FetchedBatch,
    GroupBounds,
    GroupMetadata,
    Header,
    NewTopic,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionDescription,
    RecordMetadata,
    SubscriptionPattern,
    TopicDescription,
    TopicPartition,
    TransactionPart,
)

__all__ = [
    "Aborted",
    "Admin",
    "BrokerDescription",
    "BufferFull",
    "Closed",
    "ClusterDescription",
    "Completion",
    "ConfigEntry",
    "Consumer",
    "ConsumerRecord",
    "Delivery",
    "DetachedTransaction",
    "Disconnected",
    "Fatal",
    "Fenced",
    "FetchedBatch",
    "GroupBounds",
    "GroupDescription",
    "GroupLag",
    "GroupListing",
    "GroupMemberDescription",
    "GroupMetadata",
    "HangingTransaction",
    "Header",
    "NewTopic",
    "OdradekError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRange",
    "OffsetReset",
    "PartitionDescription",
    "PartitionMove",
    "PartitionProducers",
    "Pin",
    "PoisonRecord",
    "PreparedTransaction",
    "Producer",
    "ProducerDescription",
    "ProducerIdAndEpoch",
    "Rebalanced",
    "RecordMetadata",
    "Refused",
    "ResetTo",
    "Retriable",
    "SubscriptionPattern",
    "TimedOut",
    "TopicDescription",
    "TopicPartition",
    "Transaction",
    "TransactionDescription",
    "TransactionGroup",
    "TransactionListing",
    "TransactionPart",
]
