"""What a real Kafka's directory contains that the tests of the import read."""

from typing import Final

from odradek.client import TopicPartition

RECORDS: Final = TopicPartition("records", 0)
"""Records of every codec, with keys, headers and nulls."""
SPREAD: Final = "spread"
"""A topic of three partitions, with settings of its own."""
TRIMMED: Final = TopicPartition("trimmed", 0)
"""The records before `TRIMMED_AT` were deleted, inside a segment."""
TRIMMED_AT: Final = 17
COMPACTED: Final = TopicPartition("compacted", 0)
ONCE_COMPACTED: Final = TopicPartition("once-compacted", 0)
"""A topic that was compacted, and is not any more."""
KEYS: Final = 5
ROUNDS: Final = 4
LEFT_MAX: Final = ROUNDS + 2 * KEYS
"""The records that compaction leaves: the newest of each key, and those of the active segment."""
VALUE_BYTES: Final = 140_000
TRANSACTIONS: Final = "transactions"
"""A topic of two partitions, with the same transactions in both."""
TRANSACTIONS_END: Final = 8
"""Five records, and the markers of three that have ended."""
DELETED: Final = "deleted"

COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
LEFT: Final = "left"
"""The id of a producer that was killed in its transaction."""
PREPARED: Final = "prepared"
"""The id of a producer whose transaction waits for another system to decide."""
DECIDED: Final = "decided"
"""The id of a transaction that was committed; Kafka was killed before its markers."""
OPEN_MS: Final = 600_000

CLASSIC: Final = "classic group"
CONSUMER: Final = "consumer group"
ALONE: Final = "group without members"
PENDING: Final = "group with a pending offset"
"""It has the offset 1, and 2 in the transaction of `LEFT`."""
STORED: Final = 3
METADATA: Final = "stored in Kafka"

FOR_EVER: Final = {"retention.ms": "-1"}
SPREAD_CONFIGS: Final = {**FOR_EVER, "max.message.bytes": "500000"}
COMPACTED_CONFIGS: Final = {
    "segment.bytes": "1048576",
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1",
}
CLUSTER_CONFIGS: Final = {"log.retention.ms": "900000000", "num.io.threads": "4"}
GROUP_CONFIGS: Final = {"consumer.session.timeout.ms": "50000"}
USER: Final = "alice"
NODE_ID: Final = 7

SETTINGS: Final = {
    "node.id": str(NODE_ID),
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.two.phase.commit.enable": "true",
    "unstable.api.versions.enable": "true",
    "log.flush.start.offset.checkpoint.interval.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "100",
    "offsets.retention.minutes": "100000",
}


def large(number: int, key: int) -> bytes:
    """Return the value that a key gets in one of the rounds."""
    return (b"%d of %d " % (number, key)).ljust(VALUE_BYTES, b".")
