"""A thin client for Odradek and any other Kafka-compatible broker, on trio.

`Producer` (with `producer.transaction()`), `Consumer`, `Admin` and `TransactionGroup` are async
context managers.
`odradek.client.aio` has the same names for asyncio, `odradek.client.blocking` for programs without
an event loop.
"""

from odradek.client.green import check_import

check_import()

from odradek.client.administration.admin import Admin
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
from odradek.client.consuming.consumer import Consumer
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
from odradek.client.producing.delivery import Delivery
from odradek.client.producing.detached import DetachedTransaction
from odradek.client.producing.prepared import Completion, PreparedTransaction
from odradek.client.producing.producer import Producer
from odradek.client.producing.transaction import Transaction
from odradek.client.producing.transaction_group import TransactionGroup
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
