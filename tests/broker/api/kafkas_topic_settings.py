"""The settings of a topic in Kafka 4.3: type, default, the ends of what is accepted, and past them.

`tests/broker/api/test_topic_settings.py` asks a real Kafka the same.
"""

from dataclasses import dataclass
from typing import Final

from odradek.broker.config.settings import INT32_MAX, INT64_MAX, ConfigType

SMALLEST_SEGMENT: Final = 1024 * 1024
"""Ours may be smaller."""


@dataclass(frozen=True, slots=True)
class Known:
    """One setting of a topic."""

    type: ConfigType
    default: str
    accepted: tuple[str, ...]
    refused: tuple[str, ...]


def _numbers(
    kind: ConfigType, default: int, low: int | None, high: int | None = None, *more: str
) -> Known:
    largest = INT32_MAX if kind is ConfigType.INT else INT64_MAX
    lowest = -largest - 1 if low is None else low
    highest = largest if high is None else high
    return Known(
        kind,
        str(default),
        (str(lowest), str(highest), *more),
        (str(lowest - 1), str(highest + 1), "many"),
    )


def _int32(default: int, low: int | None, high: int | None = None) -> Known:
    return _numbers(ConfigType.INT, default, low, high)


def _int64(default: int, low: int | None, high: int | None = None) -> Known:
    return _numbers(ConfigType.LONG, default, low, high)


def _words(kind: ConfigType, default: str, *accepted: str) -> Known:
    return Known(kind, default, accepted, ("sometimes",))


_BOOLEAN: Final = Known(ConfigType.BOOLEAN, "false", ("false", "true", "FALSE"), ("maybe",))
_THROTTLED: Final = Known(
    ConfigType.LIST, "", ("*", "", "0:1", "0:1,1:2", "0:1,"), ("none", "0:1,*", "0")
)
DAY_MS: Final = 24 * 60 * 60 * 1000

TOPIC_SETTINGS_OF_KAFKA: Final = {
    "cleanup.policy": _words(
        ConfigType.LIST, "delete", "compact", "delete", "compact,delete", "delete,compact", ""
    ),
    "compression.gzip.level": Known(ConfigType.INT, "-1", ("-1", "1", "9"), ("0", "10", "-2")),
    "compression.lz4.level": _int32(9, 1, 17),
    "compression.type": _words(
        ConfigType.STRING, "producer", "uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"
    ),
    "compression.zstd.level": _int32(3, -131_072, 22),
    "delete.retention.ms": _int64(DAY_MS, 0),
    "file.delete.delay.ms": _int64(60_000, 0),
    "flush.messages": _int64(INT64_MAX, 1),
    "flush.ms": _int64(INT64_MAX, 0),
    "follower.replication.throttled.replicas": _THROTTLED,
    "index.interval.bytes": _int32(4096, 0),
    "leader.replication.throttled.replicas": _THROTTLED,
    "local.retention.bytes": _int64(-2, -2),
    "local.retention.ms": _int64(-2, -2),
    "max.compaction.lag.ms": _int64(INT64_MAX, 1),
    "max.message.bytes": _int32(1024 * 1024 + 12, 0),
    "message.timestamp.after.max.ms": _int64(60 * 60 * 1000, 0),
    "message.timestamp.before.max.ms": _int64(INT64_MAX, 0),
    "message.timestamp.type": _words(
        ConfigType.STRING, "CreateTime", "CreateTime", "LogAppendTime"
    ),
    "min.cleanable.dirty.ratio": Known(
        ConfigType.DOUBLE, "0.5", ("0", "1", "0.25"), ("-0.1", "1.1", "many")
    ),
    "min.compaction.lag.ms": _int64(0, 0),
    "min.insync.replicas": _int32(1, 1),
    "preallocate": _BOOLEAN,
    "remote.log.copy.disable": _BOOLEAN,
    "remote.log.delete.on.disable": _BOOLEAN,
    "remote.storage.enable": Known(ConfigType.BOOLEAN, "false", ("false",), ("maybe", "true")),
    "retention.bytes": _int64(-1, None),
    "retention.ms": _int64(7 * DAY_MS, -1),
    "segment.bytes": Known(
        ConfigType.INT,
        str(1024 * 1024 * 1024),
        (str(SMALLEST_SEGMENT), str(INT32_MAX)),
        ("0", str(INT32_MAX + 1), "many"),
    ),
    "segment.index.bytes": _int32(10 * 1024 * 1024, 4),
    "segment.jitter.ms": _int64(0, 0),
    "segment.ms": _int64(7 * DAY_MS, 1),
    "unclean.leader.election.enable": Known(
        ConfigType.BOOLEAN, "false", ("false", "FALSE"), ("maybe",)
    ),
}
"""Kafka also accepts `unclean.leader.election.enable=true`, which is refused here."""
