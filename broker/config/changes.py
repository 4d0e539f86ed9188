"""Changes of settings: what a request asks for, and the settings that result. Pure.

The codes are Kafka's, which differ by resource: a wrong value is INVALID_CONFIG for a topic and
INVALID_REQUEST for a broker.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import Final

from odradek.broker.config.broker import BrokerConfig, broker_settings, setting_of
from odradek.broker.config.consumer_group_settings import check_group_configs
from odradek.broker.config.live import ALL_BROKERS, DYNAMIC, is_live
from odradek.broker.config.settings import (
    ConfigError,
    ConfigType,
    Setting,
    nearest_name,
    shortened,
    text_of,
)
from odradek.broker.config.settling import COARSER, RENAMED
from odradek.broker.config.tls import OF_LISTENERS, live_setting_of
from odradek.broker.config.topic import TOPIC_SETTINGS, check_topic_configs, topic_value
from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import INTERNAL_TOPICS

LISTED_MAX: Final = 20
"""The names that a sentence lists before it counts the others."""
MIN_ISR: Final = "min.insync.replicas"
STATIC: Final = frozenset((*broker_settings(), *COARSER, *RENAMED)) - DYNAMIC
"""The settings that a broker has only from its start on."""


class _OfBrokers:
    """The names of all settings that a broker may have."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in STATIC or setting_of(name) is not None)


OF_BROKERS: Final = _OfBrokers()
OF_STATE_TOPICS: Final = frozenset(
    {
        "delete.retention.ms",
        "index.interval.bytes",
        "max.compaction.lag.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        MIN_ISR,
        "segment.bytes",
        "segment.index.bytes",
        "segment.ms",
        *(name for name, topic in TOPIC_SETTINGS.items() if topic.setting.no_effect),
    }
)
"""The settings of state topics that can be changed. The others decide what is kept."""


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS: Final = frozenset(Operation)


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One change as requested. `operation` may be a number that nothing stands for."""

    name: str
    operation: int
    value: str | None = None


Alter = Callable[[Mapping[str, str]], dict[str, str]]
"""Returns the settings that follow from those that are there. Raises KafkaError."""


@dataclass(slots=True)
class Wording:
    """The changes of one resource, checked one by one, as a request may have many.

    `known` has the names that mean something. Only the first unknown name is kept, to be refused by
    `Alter`; one that is deleted is left out, as in Kafka.
    """

    known: Container[str]
    changes: list[SettingChange] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    _null: list[str] = field(default_factory=list)
    _is_twice: bool = False
    _has_unknown: bool = False
    _operation: int | None = None

    def add(self, change: SettingChange) -> None:
        """Note one change."""
        self._is_twice |= change.name in self._names
        self._names.add(change.name)
        if change.operation not in _OPERATIONS:
            self._operation = change.operation
        elif change.operation != Operation.DELETE and change.value is None:
            self._null.append(change.name)
        if change.name in self.known:
            self.changes.append(change)
        elif change.operation != Operation.DELETE and not self._has_unknown:
            self._has_unknown = True
            self.changes.append(change)

    def check(self) -> None:
        """Raise INVALID_REQUEST for a name that is there twice, and for null values."""
        if self._is_twice:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Error due to duplicate config keys. Change each setting once.",
            )
        if self._null:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Null value not supported for : {_listed(self._null)}. Delete a setting to have "
                "its default.",
            )
        if self._operation is not None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unknown operations type {self._operation}. It is 0 to set, 1 to delete, 2 to "
                "append or 3 to subtract.",
            )


def topic_alteration(topic: str, changes: Sequence[SettingChange], broker: BrokerConfig) -> Alter:
    """Return what changes of a topic's settings make of those that it has."""
    refused = [
        c.name for c in changes if c.name in TOPIC_SETTINGS and c.name not in OF_STATE_TOPICS
    ]
    if topic in INTERNAL_TOPICS and refused:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{_listed(refused)} of the internal topic {topic} cannot be changed: it keeps the "
            "broker's transactions or groups.",
        )

    def alter(configs: Mapping[str, str]) -> dict[str, str]:
        changed = dict(configs)
        for change in changes:
            known = TOPIC_SETTINGS.get(change.name)
            setting = None if known is None else known.setting
            if change.operation in (Operation.APPEND, Operation.SUBTRACT) and not _is_list(setting):
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"Can't {Operation(change.operation).name} to key {shortened(change.name)} "
                    "because its type is not LIST. Set it.",
                )
            inherited = text_of(topic_value(change.name, {}, broker)) if known else ""
            _apply(change, changed, inherited)
        return check_topic_configs(changed.items(), broker)

    return alter


def topic_replacement(topic: str, changes: Sequence[SettingChange], broker: BrokerConfig) -> Alter:
    """Return what AlterConfigs makes of a topic's settings: all others have their defaults."""
    alter = topic_alteration(topic, changes, broker)

    def replaced(configs: Mapping[str, str]) -> dict[str, str]:
        kept = configs.items() if topic in INTERNAL_TOPICS else ()
        return alter({name: text for name, text in kept if name not in OF_STATE_TOPICS})

    return replaced


def group_alteration(
    changes: Sequence[SettingChange], broker: BrokerConfig, *, replaces: bool = False
) -> Alter:
    """Return what changes of a consumer group's settings make of those that it has."""

    def alter(configs: Mapping[str, str]) -> dict[str, str]:
        changed = {} if replaces else dict(configs)
        for change in changes:
            if change.operation in (Operation.APPEND, Operation.SUBTRACT):
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"Can't {Operation(change.operation).name} to key {shortened(change.name)} "
                    "because its type is not LIST. Set it.",
                )
            _apply(change, changed, "")
        try:
            return check_group_configs(changed, broker)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None

    return alter


def broker_alteration(
    broker: str, changes: Sequence[SettingChange], *, replaces: bool = False
) -> Alter:
    """Return what changes of a broker's settings, or of all brokers', make of the earlier ones.

    With `replaces` the earlier ones are removed.
    """

    def alter(configs: Mapping[str, str]) -> dict[str, str]:
        changed = {} if replaces else dict(configs)
        for change in changes:
            setting = setting_of(change.name)
            if change.operation in (Operation.APPEND, Operation.SUBTRACT):
                _check_known([change.name])
                if not _is_list(setting):
                    word = Operation(change.operation).name.lower()
                    raise KafkaError(
                        ErrorCode.INVALID_CONFIG,
                        f"Config value {word} is not allowed for config key: {change.name}. It is "
                        "not a list: set it.",
                    )
            _apply(change, changed, text_of(setting.default) if setting else "")
        _check_broker_configs(broker, changed, {change.name for change in changes})
        return {name: text.strip() for name, text in changed.items()}

    return alter


def _apply(change: SettingChange, configs: dict[str, str], inherited: str) -> None:
    """Apply one change. A list begins with what it inherits, as in Kafka."""
    if change.operation == Operation.DELETE:
        configs.pop(change.name, None)
        return
    assert change.value is not None, change  # `Wording.check`
    if change.operation == Operation.SET:
        configs[change.name] = change.value
        return
    words = _words(configs.get(change.name, inherited))
    named = _words(change.value)
    if change.operation == Operation.APPEND:
        words = [*words, *named]
    else:
        words = [word for word in words if word not in named]
    configs[change.name] = ",".join(dict.fromkeys(words))


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _is_list(setting: Setting | None) -> bool:
    return setting is not None and setting.type is ConfigType.LIST


def _check_broker_configs(broker: str, configs: Mapping[str, str], named: Iterable[str]) -> None:
    """Raise KafkaError unless all these settings of a broker can be changed while it runs."""
    given = [name for name in named if name in configs]
    _check_of_listeners(broker, given)
    static = sorted(name for name in given if name in OF_BROKERS and not is_live(name))
    if static:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs dynamically: [{_listed(static)}]. Set them in the file "
            "or on the command line of the broker, and restart it.",
        )
    _check_known(given)
    for name in given:
        setting = setting_of(name)
        assert setting is not None, name  # `_check_known`
        try:
            setting.parse(name, configs[name])
        except ConfigError as error:
            is_secret = setting.type is ConfigType.PASSWORD
            refusal = setting.refusal(name, "[hidden]" if is_secret else configs[name], error)
            raise KafkaError(ErrorCode.INVALID_REQUEST, refusal) from None
    if broker != ALL_BROKERS and MIN_ISR in given:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled. Change it "
            "for all brokers, or for a topic.",
        )


def _check_of_listeners(broker: str, given: Iterable[str]) -> None:
    """Raise KafkaError for files of all listeners, or of the listeners of all brokers."""
    for name in given:
        if broker == ALL_BROKERS and live_setting_of(name) is not None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Cannot update these configs at default cluster level: [{name}]. Each broker has "
                "files of its own: change it for one broker.",
            )
        if name in OF_LISTENERS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "These security configs can be dynamically updated only per-listener using the "
                f"listener prefix: [{name}]. Say listener.name.<listener>.{name}.",
            )


def _check_known(names: Iterable[str]) -> None:
    for name in names:
        if name not in OF_BROKERS:
            near = nearest_name(name, DYNAMIC)
            meant = f" Did you mean {near}?" if near else ""
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Unknown config name: {shortened(name)}.{meant}"
            )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(shortened, names[:LISTED_MAX]))
    return shown if len(names) <= LISTED_MAX else f"{shown} and {len(names) - LISTED_MAX:,} more"
