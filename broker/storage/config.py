"""The settings of one log: Kafka's topic settings, validated, with Kafka's defaults."""

from enum import StrEnum
from typing import Final

from odradek.late import dataclass
from odradek.protocol.batch import Codec, TimestampType

KIB: Final = 1024
MIB: Final = 1024 * KIB
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
INT64_MAX: Final = 2**63 - 1


class FlushPolicy(StrEnum):
    """The point at which an append is acknowledged: on disk, or in the page cache.

    With `JOURNAL` it is on disk in the journal of the broker (`journal.py`), or in the log.
    """

    ACK = "ack"
    JOURNAL = "journal"
    OS = "os"


@dataclass(frozen=True, slots=True)
class Compression:
    """The codec of a topic's batches. A level of None is the codec's default."""

    codec: Codec
    level: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of one log. A retention of -1 is unlimited."""

    segment_bytes: int = 1024 * MIB
    segment_ms: int = 7 * DAY_MS
    segment_index_bytes: int = 10 * MIB
    index_interval_bytes: int = 4 * KIB
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    max_message_bytes: int = MIB + 12
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = HOUR_MS
    min_insync_replicas: int = 1
    compression: Compression | None = None
    """The codec that batches of clients get. None keeps the producer's."""
    is_compacted: bool = False
    """cleanup.policy has compact: the log keeps only the newest record of each key."""
    is_limited: bool = True
    """cleanup.policy has delete: retention.ms and retention.bytes apply."""
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    delete_retention_ms: int = DAY_MS
    producer_id_expiration_ms: int = DAY_MS
    member_producer_expiration_ms: int = HOUR_MS
    """For producers that are members of transaction groups."""
    producers_max: int = 50_000
    """The number of producers that the log remembers."""
    flush: FlushPolicy = FlushPolicy.ACK
