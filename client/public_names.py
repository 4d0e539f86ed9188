"""The modules that have the public names of the clients.

The three packages import a name from its module when it is first used (`odradek.late`).
"""

from typing import Final

SHARED: Final = {
    "odradek.client.administration.acls": ("AccessDecision", "Acl"),
    "odradek.client.administration.descriptions": (
        "HangingTransaction",
        "PartitionProducers",
        "Pin",
        "ProducerDescription",
        "ProducerIdAndEpoch",
        "TransactionDescription",
        "TransactionListing",
    ),
    "odradek.client.administration.group_descriptions": (
        "GroupDescription",
        "GroupLag",
        "GroupListing",
        "GroupMemberDescription",
        "OffsetReset",
    ),
    "odradek.client.administration.moves": ("PartitionMove",),
    "odradek.client.administration.quotas": ("Quotas",),
    "odradek.client.administration.resets": ("ResetTo",),
    "odradek.client.administration.users": ("ScramUser",),
    "odradek.client.errors": (
        "Aborted",
        "AuthenticationFailed",
        "BufferFull",
        "Busy",
        "Closed",
        "Disconnected",
        "Fatal",
        "Fenced",
        "OdradekError",
        "OffsetOutOfRange",
        "Rebalanced",
        "Refused",
        "Retriable",
        "TimedOut",
    ),
    "odradek.client.producing.detached": ("DetachedTransaction",),
    "odradek.client.producing.forwarding": ("Origin", "origin_of"),
    "odradek.client.producing.prepared": ("Completion", "PreparedTransaction"),
    "odradek.client.serialization": ("PoisonRecord", "SerializationContext"),
    "odradek.client.types": (
        "BrokerDescription",
        "ClusterDescription",
        "ConfigEntry",
        "ConsumerRecord",
        "FetchedBatch",
        "GroupBounds",
        "GroupMetadata",
        "Header",
        "LogDirectory",
        "NewTopic",
        "OAuthToken",
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
        "PartitionDescription",
        "RecordMetadata",
        "Serialized",
        "SubscriptionPattern",
        "TopicDescription",
        "TopicPartition",
        "TransactionPart",
    ),
}
"""The values, errors and functions that the trio, asyncio and blocking clients share."""
