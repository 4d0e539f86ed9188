"""The configuration that the sources of a broker's settings give: files, and the command line."""

from collections.abc import Sequence
from typing import Final

from odradek.broker.config.broker import HOUR_MS, MINUTE_MS, BrokerConfig, broker_settings
from odradek.broker.config.properties import Given, unknown_settings
from odradek.broker.config.settings import ConfigError, Value
from odradek.broker.config.tls import split_listener_name
from odradek.broker.config.together import check_together
from odradek.late import dataclass

# Kafka's coarser spellings of the same settings: name -> (setting, milliseconds in one of them)
COARSER: Final[dict[str, tuple[str, int]]] = {
    "log.retention.minutes": ("log.retention.ms", MINUTE_MS),
    "log.retention.hours": ("log.retention.ms", HOUR_MS),
    "log.roll.hours": ("log.roll.ms", HOUR_MS),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", HOUR_MS),
}
IN_A_CLUSTER: Final[dict[str, Value]] = {
    "default_replication_factor": 3,
    "offsets_topic_replication_factor": 3,
    "transaction_state_log_replication_factor": 3,
    "transaction_state_log_min_isr": 2,
}
"""Other defaults where `etcd.endpoints` is set."""
RENAMED: Final[dict[str, str]] = {"log.dir": "log.dirs", "broker.id": "node.id"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A configuration, and the unknown settings that were left out of it."""

    config: BrokerConfig
    ignored: tuple[str, ...] = ()


def settle(*sources: Sequence[Given], ignore_unknown: bool = False) -> Settled:
    """Return the configuration that `sources` give; a later source overrules an earlier one.

    Raises `ConfigError`, which names everything that is wrong, a line for each if it is more than
    one thing.
    """
    unknown: list[Given] = []
    wrong: list[str] = []
    values: dict[str, Value] = {}
    of_listeners: dict[str, Value] = {}
    places: dict[str, str] = {}
    for source in sources:
        values.update(_layer(source, unknown, wrong, of_listeners))
        places |= {it.name: f"{it.source}, line {it.line}" for it in source if it.line is not None}
        for it in source:
            if it.line is None:
                places.pop(it.name, None)
    if unknown and not ignore_unknown:
        known = [*broker_settings(), *COARSER, *RENAMED]
        wrong.append(unknown_settings(unknown, known))
    if wrong:
        raise ConfigError("\n".join(wrong))
    given = frozenset(name.replace("_", ".") for name in values)
    if values.get("etcd_endpoints"):
        values = {**IN_A_CLUSTER, **values}
    config = BrokerConfig(
        given=given,
        own_of_listeners=of_listeners,
        places=places,
        **values,  # type: ignore[arg-type]
    )
    check_together(config)
    return Settled(config=config, ignored=tuple(given.name for given in unknown))


def _layer(
    source: Sequence[Given],
    unknown: list[Given],
    wrong: list[str],
    of_listeners: dict[str, Value],
) -> dict[str, Value]:
    """Return the values of one source, by field. Those of listeners go to `of_listeners`.

    Where a source has a setting in two units, the finer one counts, as in Kafka.
    """
    settings = broker_settings()
    values: dict[str, Value] = {}
    units: dict[str, int] = {}
    for given in source:
        name, unit = COARSER.get(given.name, (RENAMED.get(given.name, given.name), 1))
        own = split_listener_name(name)
        setting = settings.get(name if own is None else own[1])
        if setting is None:
            unknown.append(given)
            continue
        try:
            value = setting.parse(given.name, given.text, unit=unit)
        except ConfigError as error:
            wrong.append(given.blamed(str(error)))
            continue
        if own is not None:
            of_listeners[name] = value
        elif unit <= units.get(name, unit):
            values[name.replace(".", "_")] = value
            units[name] = unit
    return values
