"""The broker's settings as they are now: those that it was started with, and changes since.

A change is kept in the metadata store, for one broker or for all of them (`""`). The order in which
a value is looked up is Kafka's: this broker's change, the change for all brokers, what the broker
was started with, the default.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from odradek.broker.config.broker import BrokerConfig, setting_of, value_of
from odradek.broker.config.settings import ConfigError, Value, text_of
from odradek.broker.config.tls import live_setting_of
from odradek.broker.config.topic import TOPIC_SETTINGS
from odradek.broker.config.unused import UNUSED, UNUSED_LIVE, UnusedNotes

LOGGER: Final = logging.getLogger(__name__)

ALL_BROKERS: Final = ""
"""The name under which changes for all brokers are kept."""
Configs = Mapping[str, str]
NO_CONFIGS: Final[Configs] = MappingProxyType({})
NO_CHANGES: Final[Mapping[str, Configs]] = MappingProxyType({})

DYNAMIC: Final = frozenset(
    {
        "group.consumer.assignment.interval.ms",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.delete.retention.ms",
        "log.cleaner.max.compaction.lag.ms",
        "log.cleaner.min.cleanable.ratio",
        "log.cleaner.min.compaction.lag.ms",
        "log.cleanup.policy",
        "log.index.interval.bytes",
        "log.index.size.max.bytes",
        "log.message.timestamp.after.max.ms",
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.type",
        "log.retention.bytes",
        "log.retention.ms",
        "log.roll.ms",
        "log.segment.bytes",
        "max.connections",
        "message.max.bytes",
        "min.insync.replicas",
        "producer.id.expiration.ms",
        "transaction.abort.on.disconnect",
        "transaction.partition.verification.enable",
        "transaction.two.phase.commit.enable",
        *UNUSED_LIVE,
    }
)
"""The settings that can be changed while the broker runs: those of Kafka that exist here, and two
about transactions that Kafka reads at its start or does not have."""


def is_live(name: str) -> bool:
    """Return True if a setting of a broker can be changed while the broker runs."""
    return name in DYNAMIC or live_setting_of(name) is not None


class LiveConfig:
    """The settings of one broker. `take` follows the metadata store."""

    def __init__(self, given: BrokerConfig) -> None:
        self.given = given
        """The settings that the broker was started with."""
        self.now = given
        self.own: Configs = NO_CONFIGS
        """The changes for this broker."""
        self.of_all: Configs = NO_CONFIGS
        """The changes for all brokers."""
        self._followers: list[Callable[[BrokerConfig], None]] = []
        self._checks: list[Callable[[BrokerConfig], None]] = []
        self._renewals: list[Callable[[], None]] = []
        self._unused = UnusedNotes()

    def call_with_each(self, follow: Callable[[BrokerConfig], None]) -> None:
        """Call `follow` with the settings of now, and again whenever they have changed."""
        self._followers.append(follow)
        follow(self.now)

    def check_with(self, check: Callable[[BrokerConfig], None]) -> None:
        """Call `check` with the settings that a change would make. It raises `ConfigError`."""
        self._checks.append(check)

    def renew_with(self, renew: Callable[[], None]) -> None:
        """Call `renew` when a change asks for what a file of a setting has now."""
        self._renewals.append(renew)

    def renew(self) -> None:
        """Read anew what files of settings have: a change may name the same file again."""
        for renew in self._renewals:
            renew()

    def check(self, own: Configs) -> None:
        """Raise `ConfigError` if a part of this broker cannot use these changes for it."""
        for check in self._checks:
            check(self._with({**self.of_all, **own}))

    def _with(self, changes: Configs) -> BrokerConfig:
        values, of_listeners = _values(changes)
        own = {**self.given.own_of_listeners, **of_listeners}
        return replace(self.given, **values, own_of_listeners=own)  # type: ignore[arg-type]

    def take(self, changes: Mapping[str, Configs]) -> bool:
        """Take the changes that an image has, by broker. Return True if a value is another now."""
        self.own = changes.get(str(self.given.node_id), NO_CONFIGS)
        self.of_all = changes.get(ALL_BROKERS, NO_CONFIGS)
        now = self._with({**self.of_all, **self.own})
        is_other = now != self.now
        self.now = now
        self._unused.note((name, it, value_of(now, name)) for name, it in UNUSED.items())
        if is_other:
            for follow in self._followers:
                follow(now)
        return is_other

    def log_overruled(self) -> None:
        """Log what the broker was started with, and does not count because of a stored change."""
        for name in sorted(self.given.given):
            given, now = (text_of(value_of(config, name)) for config in (self.given, self.now))
            if given != now:
                LOGGER.warning(
                    "%s=%s of the file or the command line does not count: it was changed to %s "
                    "while a broker ran. Remove that by odradek config unset, or by odradek "
                    "storage settings while the broker is stopped",
                    name,
                    given,
                    now,
                )

    def note_topic(self, configs: Configs) -> None:
        """Log the settings of a topic that have no effect, each once."""
        settings = {name: TOPIC_SETTINGS[name].setting for name in configs}
        self._unused.note(
            (name, it, it.parse(name, configs[name])) for name, it in settings.items()
        )


def _values(configs: Configs) -> tuple[dict[str, Value], dict[str, Value]]:
    """Return the values of changes by field, and those of listeners by name.

    One that cannot be used is logged and left out.
    """
    values: dict[str, Value] = {}
    of_listeners: dict[str, Value] = {}
    for name, text in configs.items():
        setting = setting_of(name)
        if setting is None or not is_live(name):  # a broker of a later version has more
            LOGGER.warning("the change of %s in the metadata store is not known here", name)
            continue
        try:
            value = setting.parse(name, text)
            if live_setting_of(name) is not None:
                of_listeners[name] = value
            else:
                values[name.replace(".", "_")] = value
        except ConfigError as error:
            LOGGER.warning("a change in the metadata store has no effect: %s", error)
    return values, of_listeners
