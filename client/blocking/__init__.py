"""The client for programs without an event loop: the same names, the same arguments, no `await`.

    with Producer("127.0.0.1:9092", transactional_id="refunds-0") as producer:
        with producer.transaction() as transaction:
            transaction.send("refunds", b"...")

The first use opens a client, or `open`; `close`, or the end of its block, closes it.
docs/services.md has examples.

All clients of a process run on trio in one daemon thread (`loop.py`). Several threads may use a
client; only one of them at a time reads with a consumer. It cannot be used after a fork: make a new
one in the child process. Inside a running event loop (of asyncio or trio) it works, too, but each
call blocks that event loop until it returns: import `odradek.client.aio` or `odradek.client` there.
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
    from odradek.client.blocking.admin import Admin
    from odradek.client.blocking.consumer import Consumer
    from odradek.client.blocking.delivery import Delivery
    from odradek.client.blocking.producer import Producer
    from odradek.client.blocking.transaction import Transaction
    from odradek.client.blocking.transaction_group import TransactionGroup
    from odradek.client.blocking.transaction_pool import TransactionPool
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
    "odradek.client.blocking.admin": ("Admin",),
    "odradek.client.blocking.consumer": ("Consumer",),
    "odradek.client.blocking.delivery": ("Delivery",),
    "odradek.client.blocking.producer": ("Producer",),
    "odradek.client.blocking.transaction": ("Transaction",),
    "odradek.client.blocking.transaction_group": ("TransactionGroup",),
    "odradek.client.blocking.transaction_pool": ("TransactionPool",),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = late_names(__name__, {**SHARED, **OWN_NAMES})
