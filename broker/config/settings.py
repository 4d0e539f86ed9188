"""Settings: their types, their bounds, and the sentence for a wrong value.

Names are Kafka's property names. A dataclass field `num_partitions` is the property
`num.partitions`, so that no name is written twice. `broker.py` has the broker's settings,
`topic.py` those of a topic.
"""

import difflib
import math
import re
from collections.abc import Iterable
from dataclasses import field, fields
from enum import IntEnum
from typing import Any, Final

from odradek.late import dataclass

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
SHOWN_MAX: Final = 60
"""The number of characters of a wrong value that an error repeats."""

# Only what Java reads as well. Python's int() and float() also take 1_000, other scripts' digits,
# nan and infinity.
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_FRACTION: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

# What Kafka's config providers replace. As a password it would be what everybody can guess.
_PROVIDED: Final = re.compile(r"\$\{([A-Za-z0-9_.-]+):[^}]*\}")

Value = bool | int | float | str


class ConfigError(Exception):
    """A wrong setting: one sentence that says what to do."""


class ConfigType(IntEnum):
    """The types that DescribeConfigs (v3) knows."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    type: ConfigType
    default: Value
    about: str = ""
    """The effect of the setting, in a sentence for docs/configuration.md."""
    ours: bool = False
    """Kafka has no such setting."""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    any_case: bool = False
    """True if a choice may be written in capitals, too."""
    why: str = ""
    """The reason of the bounds or choices, where it is not obvious."""
    may_be_empty: bool = False
    """True for a list that may have no words."""
    form: str = ""
    """A regular expression for the whole text."""
    form_words: str = ""
    """The form in words."""
    no_effect: str = ""
    """The reason why the setting changes nothing here. Empty for one that has an effect."""

    @property
    def documentation(self) -> str:
        """The effect of the setting; for one that has none here, that and the reason."""
        return f"{self.about} No effect here: {self.no_effect}." if self.no_effect else self.about

    def parse(self, name: str, text: str, *, unit: int = 1) -> Value:
        """Return the value of `text`, a number of `unit`s if it is one. Raises `ConfigError`."""
        text = text.strip()
        if self.type is ConfigType.BOOLEAN:
            value = {"true": True, "false": False}.get(text.lower())
            if value is None:
                raise ConfigError(
                    f"{name} is true or false, not {_quoted(text)}{_nearest_bool(text)}."
                )
            if self.choices and text.lower() not in self.choices:
                raise ConfigError(self._not_a_choice(name, text))
            return value
        if self.type in (ConfigType.INT, ConfigType.LONG):
            return self._parse_number(name, text, unit)
        if self.type is ConfigType.DOUBLE:
            return self._parse_fraction(name, text)
        if not text and self.may_be_empty:
            return text
        if not text:
            raise ConfigError(f"{name} is empty; give it a value, or leave it out.")
        if self.type is ConfigType.PASSWORD and (found := _PROVIDED.search(text)):
            raise ConfigError(
                f"{name} has ${{{found[1]}:...}}, which a config provider of Kafka replaces; the "
                "broker has none: write the value itself, into a file that only its user may read."
            )
        if self.type is ConfigType.LIST:
            text = ",".join(dict.fromkeys(part.strip() for part in text.split(",")))
        if self.any_case:
            text = text.lower()
        if self.form and not re.fullmatch(self.form, text):
            raise ConfigError(f"{name} is {self.form_words}, not {_quoted(text)}.")
        if self.choices and text not in self.choices:
            raise ConfigError(self._not_a_choice(name, text))
        return text

    def _parse_number(self, name: str, text: str, unit: int) -> int:
        largest = INT32_MAX if self.type is ConfigType.INT else INT64_MAX
        high = largest if self.high is None else int(self.high)
        low = -largest - 1 if self.low is None else int(self.low)
        if not _WHOLE.fullmatch(text):
            raise ConfigError(f"{name} is a whole number, not {_quoted(text)}.")
        if len(text) > SHOWN_MAX:  # Python refuses to convert some thousand digits
            raise ConfigError(f"{name} cannot be a number of {len(text)} digits.")
        if self.choices and text not in self.choices:
            raise ConfigError(self._not_a_choice(name, text))
        value = int(text)
        in_ones = value * unit if value > 0 else value  # -1 is "no limit" in every unit
        if not low <= in_ones <= high:
            lowest = -(-low // unit) if low > 0 else low
            nearest = lowest if in_ones < low else high // unit
            raise ConfigError(self._outside(name, text, nearest))
        return in_ones

    def _parse_fraction(self, name: str, text: str) -> float:
        value = float(text) if _FRACTION.fullmatch(text) else math.nan
        if math.isnan(value):
            raise ConfigError(f"{name} is a number, not {_quoted(text)}.")
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        if not low <= value <= high or math.isinf(value):
            raise ConfigError(self._outside(name, text, low if value < low else high))
        return value

    def refusal(self, name: str, text: str, error: ConfigError) -> str:
        """Return Kafka's phrase for a wrong value, our sentence, and the range of a number."""
        ranges = {ConfigType.INT: INT32_MAX, ConfigType.LONG: INT64_MAX, ConfigType.DOUBLE: "any"}
        allowed = ""
        if self.type in ranges:
            high = ranges[self.type] if self.high is None else self.high
            low = -INT64_MAX if self.low is None else self.low
            allowed = f" Allowed is {low} to {high}."
        return f"Invalid value {shortened(text)} for configuration {name}: {error}{allowed}"

    def _outside(self, name: str, text: str, nearest: float) -> str:
        because = f": {self.why}" if self.why else ""
        return f"{name} cannot be {shortened(text)}{because}; the nearest is {nearest}."

    def _not_a_choice(self, name: str, text: str) -> str:
        near = difflib.get_close_matches(text, self.choices, 1, 0.5)
        meant = f" Did you mean {near[0]}?" if near and not self.why else ""
        because = f": {self.why}" if self.why else ""
        return f"{name} is {' or '.join(self.choices)}, not {_quoted(text)}{because}.{meant}"


def shortened(text: str) -> str:
    """Shorten a name or value that a user gave, for an error."""
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _quoted(text: str) -> str:
    return repr(shortened(text))


def _nearest_bool(text: str) -> str:
    yes, no = ("1", "yes", "on", "t", "y"), ("0", "no", "off", "f", "n")
    if text.lower() in yes or text.lower().startswith("tr"):
        return "; say true"
    if text.lower() in no or text.lower().startswith("fa"):
        return "; say false"
    return ""


def text_of(value: Value) -> str:
    """Return a value as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def unknown_name(name: str, known: Iterable[str], *, of: str) -> str:
    """Return the error for an unknown setting, with the nearest known name."""
    near = nearest_name(name, known)
    meant = f" Did you mean {near}?" if near else ""
    return f"{shortened(name)} is not a setting of {of}.{meant}"


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that differs from `name` by a typing error only; None without one."""
    near = difflib.get_close_matches(name[:SHOWN_MAX], list(known), 1, 0.85)
    return near[0] if near else None


def _setting(default: Value, about: str, kind: ConfigType, options: dict[str, Any]) -> Any:
    made = Setting(type=kind, default=default, about=about, **options)
    shown = kind is not ConfigType.PASSWORD
    return field(default=default, repr=shown, metadata={"setting": made})


def int32(default: int, *, about: str, **options: Any) -> Any:
    return _setting(default, about, ConfigType.INT, options)


def int64(default: int, *, about: str, **options: Any) -> Any:
    return _setting(default, about, ConfigType.LONG, options)


def boolean(default: bool, *, about: str, **options: Any) -> Any:
    return _setting(default, about, ConfigType.BOOLEAN, options)


def double(default: float, *, about: str, **options: Any) -> Any:
    return _setting(default, about, ConfigType.DOUBLE, options)


def words(default: str, *, about: str, **options: Any) -> Any:
    """Declare a list, separated by commas."""
    return _setting(default, about, ConfigType.LIST, options)


def string(default: str, *, about: str, **options: Any) -> Any:
    return _setting(default, about, ConfigType.STRING, options)


def password(default: str, *, about: str, **options: Any) -> Any:
    """Declare a text that is never shown."""
    return _setting(default, about, ConfigType.PASSWORD, options)


def settings_of(cls: type[Any]) -> dict[str, Setting]:
    """Return the settings that a dataclass declares, by Kafka's name."""
    return {
        f.name.replace("_", "."): f.metadata["setting"]
        for f in fields(cls)
        if "setting" in f.metadata
    }
