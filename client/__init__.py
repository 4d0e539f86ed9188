"""A thin client for Odradek and any other Kafka-compatible broker, on trio.

`Producer` (with `producer.transaction()`), `Consumer`, `Admin`, `TransactionPool` and
`TransactionGroup` are async context managers. Where a block does not fit, a task of your nursery
keeps a client open: `producer = await nursery.start(Producer(address).serve)`, until
`await producer.close()`. docs/services.md has examples.

`odradek.client.aio` has the same names for asyncio, `odradek.client.blocking` for programs without
an event loop.
"""

if __name__ == "client":  # a second copy of every class, beside those of odradek.client
    raise ImportError("import odradek.client: the folder client would be a second copy of it")

from odradek.client.green import check_import

check_import()

from typing import TYPE_CHECKING, Final

import trio  # noqa: F401 - now, before a program patches its locks

from odradek.client.public_names import SHARED
from odradek.late import late_names

if TYPE_CHECKING:
    from odradek.client.administration.acls import AccessDecision, Acl
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
    from odradek.client.administration.quotas import Quotas
    from odradek.client.administration.resets import ResetTo
    from odradek.client.administration.users import ScramUser
    from odradek.client.consuming.consumer import Consumer
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
    from odradek.client.producing.delivery import Delivery
    from odradek.client.producing.detached import DetachedTransaction
    from odradek.client.producing.forwarding import Origin, origin_of
    from odradek.client.producing.prepared import Completion, PreparedTransaction
    from odradek.client.producing.producer import Producer
    from odradek.client.producing.transaction import Transaction
    from odradek.client.producing.transaction_group import TransactionGroup
    from odradek.client.producing.transaction_pool import TransactionPool
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

OWN_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "odradek.client.administration.admin": ("Admin",),
    "odradek.client.cluster": (),
    "odradek.client.config": (),
    "odradek.client.consuming.consumer": ("Consumer",),
    "odradek.client.grouping": (),
    "odradek.client.options": (),
    "odradek.client.producing.delivery": ("Delivery",),
    "odradek.client.producing.producer": ("Producer",),
    "odradek.client.producing.transaction": ("Transaction",),
    "odradek.client.producing.transaction_group": ("TransactionGroup",),
    "odradek.client.producing.transaction_pool": ("TransactionPool",),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = late_names(__name__, {**SHARED, **OWN_NAMES})
