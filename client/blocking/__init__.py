"""The client for programs without an event loop: the same names, the same arguments, no `await`.

    with Producer("127.0.0.1:9092", transactional_id="refunds-0") as producer:
        with producer.transaction() as transaction:
            transaction.send("refunds", b"...")

All clients of a process run in one daemon thread (`loop.py`). A client may be used from several
threads, one call at a time. It cannot be used after a fork: make a new one in the child process.
Inside a running event loop (of asyncio or trio) it works too, but each call blocks
that event loop until it returns: import `odradek.client.aio` or `odradek.client` there.
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
from odradek.client.blocking.admin import Admin
from odradek.client.blocking.consumer import Consumer
from odradek.client.blocking.delivery import Delivery
from odradek.client.blocking.producer import Producer
from odradek.client.blocking.transaction import Transaction
from odradek.client.blocking.transaction_group import TransactionGroup
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
