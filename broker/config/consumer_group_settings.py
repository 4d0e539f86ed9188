"""Settings of consumer groups of the new protocol: each group may have its own.

A setting of a group has the name of the broker's setting without `group.` in front. The broker's
counts where the group has none. Bounds are the broker's `group.consumer.min.*` and
`group.consumer.max.*`; a value that a broker with other bounds has accepted counts as the nearest
one within.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from odradek.broker.config.broker import BrokerConfig, broker_settings
from odradek.broker.config.settings import ConfigError, Setting, shortened

SESSION: Final = "consumer.session.timeout.ms"
HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT: Final = "consumer.assignment.interval.ms"
GROUP_SETTINGS: Final[Mapping[str, Setting]] = {
    name: broker_settings()[f"group.{name}"] for name in (SESSION, HEARTBEAT, ASSIGNMENT)
}


def broker_name_of(name: str) -> str:
    """Return the name of the broker's setting that counts where a group has none."""
    return f"group.{name}"


def group_value(name: str, configs: Mapping[str, str], broker: BrokerConfig) -> int:
    """Return the value that counts for a group with these settings of its own."""
    value = _of_broker(broker, name)
    if name in configs:
        with suppress(ConfigError):  # written by a later version
            value = int(GROUP_SETTINGS[name].parse(name, configs[name]))
    return min(max(value, _bound(broker, name, "min")), _bound(broker, name, "max"))


def check_group_configs(configs: Mapping[str, str], broker: BrokerConfig) -> dict[str, str]:
    """Return the settings of a group as they are kept. Raises ConfigError."""
    values = {name: _of_broker(broker, name) for name in GROUP_SETTINGS}
    for name, text in configs.items():
        setting = GROUP_SETTINGS.get(name)
        if setting is None:
            raise ConfigError(f"Unknown group config name: {shortened(name)}")
        try:
            values[name] = int(setting.parse(name, text))
        except ConfigError as error:
            raise ConfigError(setting.refusal(name, text, error)) from None
    for name in configs:
        for which, word in (("min", "greater"), ("max", "less")):
            bound = _bound(broker, name, which)
            is_past = values[name] < bound if which == "min" else values[name] > bound
            if is_past:
                raise ConfigError(
                    f"{name} must be {word} than or equal to {_bound_name(name, which)}, which is "
                    f"{bound}; not {values[name]}."
                )
    if values[SESSION] <= values[HEARTBEAT]:
        raise ConfigError(
            f"{SESSION} must be greater than {HEARTBEAT}, which is {values[HEARTBEAT]}; not "
            f"{values[SESSION]}."
        )
    return {name: str(values[name]) for name in configs}


def _bound_name(name: str, which: str) -> str:
    return f"group.consumer.{which}.{name.removeprefix('consumer.')}"


def _bound(broker: BrokerConfig, name: str, which: str) -> int:
    return int(getattr(broker, _bound_name(name, which).replace(".", "_")))


def _of_broker(broker: BrokerConfig, name: str) -> int:
    return int(getattr(broker, broker_name_of(name).replace(".", "_")))
