"""The client for asyncio programs: the same names, the same arguments, the same `await`.

    async with Producer("127.0.0.1:9092", transactional_id="refunds-0") as producer:
        async with producer.transaction() as transaction:
            await transaction.send("refunds", b"...")

A client may outlive a block, as in a web application or a notebook: its first use opens it, or
`await producer.open()`, and `await producer.close()` closes it. docs/services.md has examples.

All asyncio and blocking clients of a process run on trio in one daemon thread
(`blocking/loop.py`). A client belongs to no event loop: the event loops of several threads may use
it. It cannot be used after a fork: make a new one in the child process.

If a task is cancelled, by `asyncio.timeout` too, the call that it waits for is cancelled in that
thread, and what was sent before stays sent. Callbacks of the program (`on_delivery`) are called in
the thread of the event loop that passed them. Serializers, deserializers and `on_error`
run in the thread of the event loop, too. The functions in options (`partitioner`, `connect`,
`offload`) are called in trio's thread.
"""

from typing import TYPE_CHECKING, Final

from odradek.client.public_names import SHARED
from odradek.late import late_names

if TYPE_CHECKING:
    from odradek.client.administration.acls import AccessDecision, Acl
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
    from odradek.client.administration.quotas import Quotas
    from odradek.client.administration.resets import ResetTo
    from odradek.client.administration.users import ScramUser
    from odradek.client.aio.admin import Admin
    from odradek.client.aio.consumer import Consumer
    from odradek.client.aio.delivery import Delivery
    from odradek.client.aio.producer import Producer
    from odradek.client.aio.transaction import Transaction
    from odradek.client.aio.transaction_group import TransactionGroup
    from odradek.client.aio.transaction_pool import TransactionPool
    from odradek.client.errors import (
        Aborted,
        AuthenticationFailed,
        BufferFull,
        Busy,
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
    from odradek.client.producing.forwarding import Origin, origin_of
    from odradek.client.producing.prepared import Completion, PreparedTransaction
    from odradek.client.serialization import PoisonRecord, SerializationContext
    from odradek.client.statistics import (
        ConnectionStatistics,
        ConsumerStatistics,
        LatencyStatistics,
        PartitionStatistics,
        ProducerStatistics,
    )
    from odradek.client.types import (
        BrokerDescription,
        ClusterDescription,
        ConfigEntry,
        ConsumerRecord,
        FetchedBatch,
        GroupBounds,
        GroupMetadata,
        Header,
        LogDirectory,
        NewTopic,
        OAuthToken,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        PartitionDescription,
        RecordMetadata,
        Serialized,
        SubscriptionPattern,
        TopicDescription,
        TopicPartition,
        TransactionPart,
    )

__all__ = [
    "Aborted",
    "AccessDecision",
    "Acl",
    "Admin",
    "AuthenticationFailed",
    "BrokerDescription",
    "BufferFull",
    "Busy",
    "Closed",
    "ClusterDescription",
    "Completion",
    "ConfigEntry",
    "ConnectionStatistics",
    "Consumer",
    "ConsumerRecord",
    "ConsumerStatistics",
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
    "LatencyStatistics",
    "LogDirectory",
    "NewTopic",
    "OAuthToken",
    "OdradekError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRange",
    "OffsetReset",
    "Origin",
    "PartitionDescription",
    "PartitionMove",
    "PartitionProducers",
    "PartitionStatistics",
    "Pin",
    "PoisonRecord",
    "PreparedTransaction",
    "Producer",
    "ProducerDescription",
    "ProducerIdAndEpoch",
    "ProducerStatistics",
    "Quotas",
    "Rebalanced",
    "RecordMetadata",
    "Refused",
    "ResetTo",
    "Retriable",
    "ScramUser",
    "SerializationContext",
    "Serialized",
    "SubscriptionPattern",
    "TimedOut",
    "TopicDescription",
    "TopicPartition",
    "Transaction",
    "TransactionDescription",
    "TransactionGroup",
    "TransactionListing",
    "TransactionPart",
    "TransactionPool",
    "origin_of",
]

OWN_NAMES: Final = {
    "odradek.client.aio.admin": ("Admin",),
    "odradek.client.aio.consumer": ("Consumer",),
    "odradek.client.aio.delivery": ("Delivery",),
    "odradek.client.aio.producer": ("Producer",),
    "odradek.client.aio.transaction": ("Transaction",),
    "odradek.client.aio.transaction_group": ("TransactionGroup",),
    "odradek.client.aio.transaction_pool": ("TransactionPool",),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = late_names(__name__, {**SHARED, **OWN_NAMES})
