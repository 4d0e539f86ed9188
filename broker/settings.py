"""What a setting is: its type, its bounds, and one sentence for whoever got it wrong.

Names are Kafka's property names. A dataclass field `num_partitions` is the property
`num.partitions`, so that no name is written twice. `config.py` has the broker's settings,
`topic_config.py` those of a topic.
"""

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, Final

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

Value = bool | int | float | str


class ConfigError(Exception):
    """A setting that cannot be: one sentence that says what to do."""


class ConfigType(IntEnum):
    """The types that DescribeConfigs (v3) knows."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    type: ConfigType
    default: Value
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    why: str = ""
    """Why nothing outside the bounds or choices is possible, where that needs saying."""

    def parse(self, name: str, text: str) -> Value:
        """The value that `text` says. Raises `ConfigError`."""
        text = text.strip()
        if self.type is ConfigType.BOOLEAN:
            value = {"true": True, "false": False}.get(text.lower())
            if value is None:
                raise ConfigError(f"{name} is true or false, not {text!r}{_nearest_bool(text)}.")
            if self.choices and text.lower() not in self.choices:
                raise ConfigError(self._not_a_choice(name, text))
            return value
        if self.type in (ConfigType.INT, ConfigType.LONG):
            return self._parse_number(name, text)
        if self.type is ConfigType.DOUBLE:
            return self._parse_fraction(name, text)
        if self.type is ConfigType.LIST:
            text = ",".join(part.strip() for part in text.split(","))
        if self.choices and text not in self.choices:
            raise ConfigError(self._not_a_choice(name, text))
        return text

    def _parse_number(self, name: str, text: str) -> int:
        largest = INT32_MAX if self.type is ConfigType.INT else INT64_MAX
        high = largest if self.high is None else self.high
        low = -largest - 1 if self.low is None else self.low
        try:
            value = int(text)
        except ValueError:
            raise ConfigError(f"{name} is a whole number, not {text!r}.") from None
        self._check_bounds(name, value, low, high)
        return value

    def _parse_fraction(self, name: str, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isnan(value):
            raise ConfigError(f"{name} is a number, not {text!r}.")
        low = -math.inf if self.low is None else self.low
        self._check_bounds(name, value, low, math.inf if self.high is None else self.high)
        return value

    def _check_bounds(self, name: str, value: float, low: float, high: float) -> None:
        if not low <= value <= high:
            nearest = low if value < low else high
            because = f": {self.why}" if self.why else ""
            raise ConfigError(f"{name} cannot be {value}{because}; the nearest is {nearest}.")

    def _not_a_choice(self, name: str, text: str) -> str:
        near = difflib.get_close_matches(text, self.choices, 1, 0.5)
        meant = f" Did you mean {near[0]}?" if near and not self.why else ""
        because = f": {self.why}" if self.why else ""
        return f"{name} is {' or '.join(self.choices)}, not {text!r}{because}.{meant}"


def _nearest_bool(text: str) -> str:
    yes, no = ("1", "yes", "on", "t", "y"), ("0", "no", "off", "f", "n")
    if text.lower() in yes or text.lower().startswith("tr"):
        return "; say true"
    if text.lower() in no or text.lower().startswith("fa"):
        return "; say false"
    return ""


def text_of(value: Value) -> str:
    """A value as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def unknown_name(name: str, known: Iterable[str], *, of: str) -> str:
    """The sentence about a setting that nobody knows, with the nearest that there is."""
    near = difflib.get_close_matches(name, list(known), 1, 0.6)
    meant = f" Did you mean {near[0]}?" if near else ""
    return f"{name} is not a setting of {of}.{meant}"


def _setting(default: Value, kind: ConfigType, options: dict[str, Any]) -> Any:
    made = Setting(type=kind, default=default, **options)
    return field(default=default, metadata={"setting": made})


def int32(default: int, **options: Any) -> Any:
    return _setting(default, ConfigType.INT, options)


def int64(default: int, **options: Any) -> Any:
    return _setting(default, ConfigType.LONG, options)


def boolean(default: bool, **options: Any) -> Any:
    return _setting(default, ConfigType.BOOLEAN, options)


def double(default: float, **options: Any) -> Any:
    return _setting(default, ConfigType.DOUBLE, options)


def words(default: str, **options: Any) -> Any:
    """A list, with commas between."""
    return _setting(default, ConfigType.LIST, options)


def string(default: str, **options: Any) -> Any:
    return _setting(default, ConfigType.STRING, options)


def settings_of(cls: type[Any]) -> dict[str, Setting]:
    """The settings of a dataclass made of them, by Kafka's name."""
    return {f.name.replace("_", "."): f.metadata["setting"] for f in fields(cls)}
