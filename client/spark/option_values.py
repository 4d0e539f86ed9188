"""The values of options: each function reads one, and raises ValueError with what it should be."""

import re
from collections.abc import Callable, Iterable
from typing import Final, Literal, cast, get_args

from odradek.client.config import CODECS, parse_bootstrap
from odradek.protocol.batch import Codec

Mode = Literal["auto", "group", "relay"]


class NotAWord(ValueError):
    """The value is none of the words that an option takes. The message states what it should be."""

    def __init__(self, message: str, words: Iterable[str]) -> None:
        super().__init__(message)
        self.words = tuple(words)


def boolean(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise NotAWord("is true or false", ("true", "false"))
    return value.lower() == "true"


def positive(value: str) -> int:
    if not value.isdecimal() or int(value) == 0:
        raise ValueError("is a whole number above 0")
    return int(value)


def positive_int(value: str) -> int:
    """Read a number that the protocol has in 32 bits, as Kafka's clients do."""
    if not value.isdecimal() or not 0 < int(value) < 1 << 31:
        raise ValueError("is a whole number from 1 to 2^31-1")
    return int(value)


def not_negative(value: str) -> int:
    if not value.isdecimal() or int(value) >= 1 << 63:
        raise ValueError("is a whole number from 0 to 2^63-1")
    return int(value)


def isolation(value: str) -> str:
    levels = ("read_committed", "read_uncommitted")
    if value not in levels:
        raise NotAWord("is read_committed or read_uncommitted", levels)
    return value


def codec(value: str) -> Codec:
    if value not in CODECS:
        raise NotAWord(f"is one of {', '.join(CODECS)}", CODECS)
    return CODECS[value]


def mode(value: str) -> Mode:
    for mode in get_args(Mode):
        if value.lower() == mode:
            return cast(Mode, mode)
    raise NotAWord("is auto, group or relay", get_args(Mode))


def exactly(*allowed: str) -> Callable[[str], str | None]:
    def parse(value: str) -> str | None:
        if value.lower() not in [word.lower() for word in allowed]:
            raise NotAWord(f"is {' or '.join(allowed)} here, for nothing else is served", allowed)
        return value

    return parse


def bootstrap(value: str) -> str:
    try:
        parse_bootstrap(value)
    except ValueError:
        raise ValueError("is HOST:PORT, or several separated by commas") from None
    return value


def topic_name(value: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", value):
        raise ValueError("is a name of 1 to 249 of the characters a-z A-Z 0-9 . _ -")
    return value


def prefix(value: str) -> str:
    """Read a prefix of the names of a topic, groups and transactional ids."""
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,200}", value):
        raise ValueError("is a name of 1 to 200 of the characters a-z A-Z 0-9 . _ -")
    return value


def names(value: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not names:
        raise ValueError("is a topic, or several separated by commas")
    return names


def pattern(value: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except re.error as error:
        raise ValueError(f"is a regular expression ({error})") from None


def strategy(value: str) -> bool:
    if value.lower() not in ("error", "latest"):
        raise NotAWord("is error or latest", ("error", "latest"))
    return value.lower() == "latest"


_MINUTE_MS: Final = 60_000
_UNITS_MS: Final = {
    **{"": 1, "ms": 1, "s": 1000, "m": _MINUTE_MS, "min": _MINUTE_MS},
    **{"h": 60 * _MINUTE_MS, "d": 24 * 60 * _MINUTE_MS},
}
_UNITS_MS_PATTERN: Final = re.compile("([0-9]+)(|ms|s|m|min|h|d)")


def duration_ms(value: str) -> int:
    """Read a time span as Spark does: 15m, 30s, or milliseconds without a unit."""
    found = _UNITS_MS_PATTERN.fullmatch(value.lower())
    if found is None:
        raise ValueError("is a number with a unit, as in 15m, 30s or 500ms")
    return int(found[1]) * _UNITS_MS[found[2]]
