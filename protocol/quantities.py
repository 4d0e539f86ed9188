"""Durations and sizes as people write them: 1d, 512MiB. Kafka's settings are plain numbers.

Only what a person types is read here: options, `NAME=VALUE` of a command, a properties file. What
goes to a broker is always a number, so every broker understands it.
"""

import re
from fractions import Fraction
from typing import Final

DURATIONS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
SIZES: Final = {
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
IN_MS: Final = {"ms": 1, "seconds": 1_000, "minutes": 60_000, "hours": 3_600_000}
"""The last word of a setting that is a duration, and its unit."""
SIZE_WORDS: Final = ("bytes", "buffer.size")
QUANTITY: Final = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,19})?) ?([A-Za-z]+)")
"""A number with a unit. No setting has more digits than INT64."""


def seconds(text: str) -> float | None:
    """Return a duration such as 1.5h in seconds; None for what has no unit. Raises ValueError."""
    found = QUANTITY.fullmatch(text.strip())
    if found is None:
        return None
    return float(_in_units(text, found, DURATIONS_MS) / 1_000)


def as_number(name: str, text: str) -> str:
    """Return the value of a setting as the number that it stands for; other values as they are.

    `retention.ms=7d` is 604800000, `log.retention.hours=7d` 168, `segment.bytes=512MiB` 536870912.
    Raises ValueError for a unit that does not exist, or a value that is no whole number then.
    """
    found = QUANTITY.fullmatch(text.strip())
    unit_ms = IN_MS.get(name.rpartition(".")[2])
    is_size = any(f".{word}." in f".{name}." for word in SIZE_WORDS)
    if found is None or not (unit_ms or is_size):
        return text
    if unit_ms is None:
        number = _in_units(text, found, SIZES)
    else:
        number = _in_units(text, found, DURATIONS_MS) / unit_ms
    if number.denominator != 1:
        raise ValueError(f"{name} is a whole number: {text} would be {float(number):g}")
    return str(number.numerator)


def _in_units(text: str, found: re.Match[str], units: dict[str, int]) -> Fraction:
    """Return a quantity in the smallest of the units. Raises ValueError."""
    number, unit = found.groups()
    if unit not in units:
        what = "duration" if units is DURATIONS_MS else "size"
        raise ValueError(f"{text!r} is no {what}: the units are {', '.join(units)}")
    return Fraction(number) * units[unit]
