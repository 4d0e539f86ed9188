"""What the data directories of earlier versions contain: `make.py` writes it, the tests read it.

A directory that was made stays as it is. A later version may write more, under new names.
"""

from typing import Final

from odradek.client import TopicPartition
from odradek.client.administration.acls import Acl

RECORDS: Final = TopicPartition("records", 0)
"""Ordinary records of an idempotent producer."""
VALUES: Final = [b"record %d" % number for number in range(40)]

TRANSACTIONS: Final = "transactions"
"""A topic of two partitions, with the same records in both."""
COMMITTED: Final = b"committed"
ABORTED: Final = b"aborted"
GROUPED: Final = b"detached, for a transaction group to commit"
PREPARED: Final = b"prepared, for another system to decide"
LEFT: Final = b"left open by a program that was killed"

TRANSACTION_GROUP: Final = "upgrade"
MEMBERS: Final = ("one", "two")
PREPARED_ID: Final = "prepared"
LEFT_ID: Final = "left"

CLASSIC: Final = "classic group"
CONSUMER: Final = "consumer group"
ALONE: Final = "group without members"
PENDING: Final = "group with a pending offset"
"""It has the offset 1, and in the transaction of `PREPARED_ID` the offset 2."""
STORED: Final = 30
STORED_METADATA: Final = "stored by an earlier version"

TRIMMED: Final = TopicPartition("trimmed", 0)
"""The records before `TRIMMED_AT` were deleted."""
TRIMMED_AT: Final = 17

COMPACTED: Final = TopicPartition("compacted", 0)
KEYS: Final = 5
ROUNDS: Final = 20
VALUE_BYTES: Final = 2000
COMPACTED_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "16384",
    "min.cleanable.dirty.ratio": "0.01",
}

DELETED: Final = "deleted"
"""A topic that was deleted, and is not there."""
DECISIONS: Final = TopicPartition("odradek-spark-decisions", 3)
"""A decision of the sink of Spark: batch 7 of the query `QUERY`."""
QUERY: Final = b"6a5a1d9c-3a4a-4b5e-9a70-0f2f0e0c3d11"
DECISION: Final = b'{"version": 1, "batch": 7, "records": 100, "members": 2}'

KEPT_FOR_EVER: Final = {"retention.ms": "-1"}
CHANGED_LATER: Final = {"max.message.bytes": "500000"}
"""A setting of the topic of `RECORDS` that was changed after it was made."""
CLUSTER_SETTING: Final = {"log.retention.ms": "900000000"}

# Since 0.2.0: access control, users, quotas, and records that only the journal has.
ACLS: Final = [
    Acl("topic", RECORDS.topic, "User:alice", "read"),
    Acl("topic", "rec", "User:bob", "write", permission="deny", pattern="prefixed"),
    Acl("group", "*", "User:*", "read", host="192.0.2.7"),
]
REMOVED_ACL: Final = Acl("topic", RECORDS.topic, "User:carol", "read")
"""It was removed after it was made: it must not come back."""
USER: Final = "alice"
PASSWORD: Final = "of an earlier version"
REMOVED_USER: Final = "carol"
QUOTAS: Final = {"producer_byte_rate": 1_000_000.0, "consumer_byte_rate": 2_000_000.0}
DEFAULT_QUOTAS: Final = {"request_percentage": 50.0}
"""Of every client without a quota of its own."""
JOURNALED: Final = TopicPartition("journaled", 0)
"""Records that were acknowledged just before the brokers lost power."""

PROPERTIES: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "log.flush": "journal",
    "log.cleaner.backoff.ms": "500",
    "transaction.two.phase.commit.enable": "true",
}


def compacted_value(key: int, number: int) -> bytes:
    """Return the value that a key gets in one of the rounds."""
    return b"%d of %d " % (number, key) * (VALUE_BYTES // 8)
