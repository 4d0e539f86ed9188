"""The settings of a topic: Kafka's names, what each falls back to, and what is refused.

All of Kafka's are here. Some change nothing for a reader, as `preallocate`: they are accepted, kept
and described, since tools copy the settings of topics between clusters, and a refused one leaves a
topic without all others. The log says once for each that it has no effect. Refused is only what
would be a promise that is not kept: `remote.storage.enable=true`,
`unclean.leader.election.enable=true`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from odradek.broker.config.broker import (
    CLEANUP_POLICIES,
    DAY_MS,
    HOUR_MS,
    KIB,
    MIB,
    MINUTE_MS,
    BrokerConfig,
    broker_settings,
    value_of,
)
from odradek.broker.config.records import (
    COMPRESSION_TYPES,
    GZIP_LEVELS,
    LZ4_DEFAULT,
    PRODUCER,
)
from odradek.broker.config.settings import (
    ConfigError,
    ConfigType,
    Setting,
    Value,
    nearest_name,
    shortened,
    text_of,
)
from odradek.broker.config.unused import NOT_THROTTLED, NOT_TIERED, UNUSED
from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC

STATE_DELETE_RETENTION_MS: Final = 10 * MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSetting:
    """A setting of a topic and the broker's setting that it falls back to, if there is one."""

    setting: Setting
    broker_name: str | None = None


def _int32(default: int, broker_name: str, **bounds: Any) -> TopicSetting:
    made = Setting(type=ConfigType.INT, default=default, **bounds)
    return TopicSetting(setting=made, broker_name=broker_name)


def _int64(default: int, broker_name: str, **bounds: Any) -> TopicSetting:
    made = Setting(type=ConfigType.LONG, default=default, **bounds)
    return TopicSetting(setting=made, broker_name=broker_name)


def _text(default: str, broker_name: str, *choices: str) -> TopicSetting:
    made = Setting(type=ConfigType.STRING, default=default, choices=choices)
    return TopicSetting(setting=made, broker_name=broker_name)


def _boolean(about: str, **options: Any) -> TopicSetting:
    return TopicSetting(
        setting=Setting(type=ConfigType.BOOLEAN, default=False, about=about, **options)
    )


def _throttled(about: str) -> TopicSetting:
    return TopicSetting(
        setting=Setting(
            type=ConfigType.LIST,
            default="",
            about=about,
            may_be_empty=True,
            form=r"\*|([0-9]+:[0-9]+)?(,([0-9]+:[0-9]+)?)*",
            form_words="* or a list of PARTITION:BROKER",
            no_effect=NOT_THROTTLED,
        )
    )


def _unused(broker_name: str) -> TopicSetting:
    return TopicSetting(setting=UNUSED[broker_name], broker_name=broker_name)


INTERNAL_SETTING: Final = "odradek.internal"

TOPIC_SETTINGS: Final[dict[str, TopicSetting]] = {
    "cleanup.policy": TopicSetting(
        setting=Setting(
            type=ConfigType.LIST, default="delete", choices=CLEANUP_POLICIES, may_be_empty=True
        ),
        broker_name="log.cleanup.policy",
    ),
    "compression.gzip.level": _int32(-1, "compression.gzip.level", choices=GZIP_LEVELS),
    "compression.lz4.level": _int32(LZ4_DEFAULT, "compression.lz4.level", low=1, high=17),
    "compression.type": _text(PRODUCER, "compression.type", *COMPRESSION_TYPES),
    "compression.zstd.level": _int32(3, "compression.zstd.level", low=-131_072, high=22),
    "delete.retention.ms": _int64(DAY_MS, "log.cleaner.delete.retention.ms", low=0),
    "file.delete.delay.ms": _unused("log.segment.delete.delay.ms"),
    "flush.messages": _unused("log.flush.interval.messages"),
    "flush.ms": _unused("log.flush.interval.ms"),
    "follower.replication.throttled.replicas": _throttled(
        "The replicas that fetch no faster than `follower.replication.throttled.rate`."
    ),
    "index.interval.bytes": _int32(4 * KIB, "log.index.interval.bytes", low=0),
    "leader.replication.throttled.replicas": _throttled(
        "The replicas that are sent no faster than `leader.replication.throttled.rate`."
    ),
    "local.retention.bytes": _unused("log.local.retention.bytes"),
    "local.retention.ms": _unused("log.local.retention.ms"),
    "max.compaction.lag.ms": _int64(2**63 - 1, "log.cleaner.max.compaction.lag.ms", low=1),
    "max.message.bytes": _int32(MIB + 12, "message.max.bytes", low=0),
    "message.timestamp.after.max.ms": _int64(HOUR_MS, "log.message.timestamp.after.max.ms", low=0),
    "message.timestamp.before.max.ms": _int64(
        2**63 - 1, "log.message.timestamp.before.max.ms", low=0
    ),
    "message.timestamp.type": _text(
        "CreateTime", "log.message.timestamp.type", "CreateTime", "LogAppendTime"
    ),
    "min.cleanable.dirty.ratio": TopicSetting(
        setting=Setting(type=ConfigType.DOUBLE, default=0.5, low=0, high=1),
        broker_name="log.cleaner.min.cleanable.ratio",
    ),
    "min.compaction.lag.ms": _int64(0, "log.cleaner.min.compaction.lag.ms", low=0),
    "min.insync.replicas": _int32(1, "min.insync.replicas", low=1),
    INTERNAL_SETTING: TopicSetting(
        setting=Setting(
            type=ConfigType.BOOLEAN,
            default=False,
            ours=True,
            about=(
                "Whether clients are told that the topic is internal: a program keeps it for "
                "itself. It is in no list and matches no pattern, unless a client asks for "
                "internal topics."
            ),
        ),
    ),
    "preallocate": _unused("log.preallocate"),
    "remote.log.copy.disable": _boolean(
        "Copy no more segments to remote storage.", no_effect=NOT_TIERED
    ),
    "remote.log.delete.on.disable": _boolean(
        "Delete what is remote when remote storage is switched off.", no_effect=NOT_TIERED
    ),
    "remote.storage.enable": _boolean(
        "Keep old segments in remote storage.", choices=("false",), why=NOT_TIERED
    ),
    "retention.bytes": _int64(-1, "log.retention.bytes"),
    "retention.ms": _int64(7 * DAY_MS, "log.retention.ms", low=-1),
    "segment.bytes": _int32(1024 * MIB, "log.segment.bytes", low=16 * KIB),
    "segment.index.bytes": _int32(10 * MIB, "log.index.size.max.bytes", low=4),
    "segment.jitter.ms": _unused("log.roll.jitter.ms"),
    "segment.ms": _int64(7 * DAY_MS, "log.roll.ms", low=1),
    "unclean.leader.election.enable": _unused("unclean.leader.election.enable"),
}


def check_topic_configs(
    configs: Iterable[tuple[str, str | None]], broker: BrokerConfig | None = None
) -> dict[str, str]:
    """Check all settings that a topic has of its own, and return them.

    With `broker` they are also compared with the settings that the topic inherits. Raises
    `KafkaError` INVALID_CONFIG with a sentence.
    """
    checked: dict[str, str] = {}
    for name, text in configs:
        if name not in TOPIC_SETTINGS:
            near = nearest_name(name, TOPIC_SETTINGS)
            meant = f" Did you mean {near}?" if near else ""
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {shortened(name)}.{meant}"
            )
        if text is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Null value not supported for topic configs: {name}. Give it a value.",
            )
        setting = TOPIC_SETTINGS[name].setting
        try:
            value = setting.parse(name, text)
        except ConfigError as error:
            invalid = setting.refusal(name, text, error)
            raise KafkaError(ErrorCode.INVALID_CONFIG, invalid) from None
        checked[name] = text_of(value) if setting.type is ConfigType.LIST else text.strip()
    _check_lags(checked, broker or BrokerConfig())
    return checked


def _check_lags(checked: Mapping[str, str], broker: BrokerConfig) -> None:
    names = ("min.compaction.lag.ms", "max.compaction.lag.ms")
    if checked.keys().isdisjoint(names):
        return
    least, most = (int(topic_value(name, checked, broker)) for name in names)
    if least > most:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({least}) > "
            f"max.compaction.lag.ms ({most}). The first cannot be more than the second.",
        )


def topic_value(name: str, configs: Mapping[str, str], broker: BrokerConfig) -> Value:
    """Return the value of a topic's setting: its own, or the broker's."""
    setting = TOPIC_SETTINGS[name]
    if name in configs:
        return setting.setting.parse(name, configs[name])
    if setting.broker_name is not None:
        return value_of(broker, setting.broker_name)
    return setting.setting.default


def about_topic(name: str) -> str:
    """Return what a setting of a topic does: its own sentence, or that of the broker's setting."""
    topic = TOPIC_SETTINGS[name]
    broker = topic.broker_name
    return topic.setting.documentation or (
        broker_settings()[broker].documentation if broker else ""
    )


def min_insync_replicas(configs: Mapping[str, str], broker: BrokerConfig) -> int:
    """Return a new topic's min.insync.replicas. It is kept with the topic (KAFKA-16540)."""
    return int(topic_value("min.insync.replicas", configs, broker))


def is_marked_internal(configs: Mapping[str, str]) -> bool:
    """Return True if a topic was made with `odradek.internal=true`."""
    return configs.get(INTERNAL_SETTING, "").lower() == "true"


def state_topic_configs(topic: str, broker: BrokerConfig) -> dict[str, str]:
    """Return the settings of an internal topic, which is compacted and has no retention.

    Tombstones and markers are kept for ten minutes, and not for a day as elsewhere. Every commit of
    offsets in a transaction leaves a marker; a day of them would be gigabytes that a coordinator
    reads at its start. No other reader needs them.
    """
    if topic == TRANSACTION_STATE_TOPIC:
        segment_bytes = broker.transaction_state_log_segment_bytes
    else:
        segment_bytes = broker.offsets_topic_segment_bytes
    return {
        "cleanup.policy": "compact",
        "delete.retention.ms": text_of(
            min(broker.log_cleaner_delete_retention_ms, STATE_DELETE_RETENTION_MS)
        ),
        "retention.bytes": "-1",
        "retention.ms": "-1",
        "segment.bytes": text_of(segment_bytes),
    }
