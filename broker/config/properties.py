"""Files of settings in Java's format (`java.util.Properties`), which Kafka's users have.

A name ends at the first `=`, `:` or white space that no backslash protects. A line whose last
backslash is not protected goes on in the next line. `\\t`, `\\n`, `\\r`, `\\f` and `\\uXXXX` are
characters; any other character after a backslash stands for itself.

Differs from Java: a line without a value is refused, and a name that is given twice is refused,
where Java takes an empty text, and the last of the two.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from odradek.broker.config.settings import ConfigError, nearest_name, unknown_name
from odradek.late import dataclass

_NAME_AND_VALUE: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)(?:[ \t\f]*[=:]|[ \t\f])?(.*)", re.S)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.|\Z)", re.S)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK: Final = " \t\f"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One setting as a user gave it, with its place."""

    name: str
    text: str
    source: str = ""
    """The file, or the option of the command line."""
    line: int | None = None

    def blamed(self, sentence: str) -> str:
        """Return `sentence`, which is about this setting, with the place of the setting first."""
        return sentence if self.line is None else f"{self.source}, line {self.line}: {sentence}"


def read_properties(text: str, *, source: str) -> list[Given]:
    """Return the settings of a properties file in their order.

    Raises `ConfigError` for a line that is no setting, and for a name that is given twice.
    """
    found: dict[str, Given] = {}
    for line, logical in _logical_lines(text):
        match = _NAME_AND_VALUE.fullmatch(logical)
        assert match is not None, logical  # each part of it may be empty
        name, value = (_unescaped(part.strip(_BLANK)) for part in match.groups())
        if not name or not value:
            raise ConfigError(f"{source}, line {line}: {logical!r} is not name=value.")
        given = Given(name=name, text=value, source=source, line=line)
        if name in found:
            first = found[name].line
            raise ConfigError(given.blamed(f"{name} is in line {first} already; keep one of them."))
        found[name] = given
    return list(found.values())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line that is no comment, continued lines as one, with the number of its first."""
    first, begun = 0, ""
    for number, natural in enumerate(re.split("\r\n|\r|\n", text), 1):
        piece = natural.lstrip(_BLANK)
        if not begun:
            if not piece or piece[0] in "#!":
                continue
            first = number
        backslashes = len(piece) - len(piece.rstrip("\\"))
        if backslashes % 2:
            begun += piece[:-1]
            continue
        yield first, begun + piece
        begun = ""
    if begun:
        yield first, begun


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: _character(match[1]), text)


def _character(escape: str) -> str:
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _CONTROLS.get(escape, escape)


def unknown_settings(unknown: Sequence[Given], known: Sequence[str]) -> str:
    """Return the error for unknown settings: one sentence, or a sentence and a list."""
    if len(unknown) == 1:
        setting = unknown[0]
        remedy = " Remove it, or go on without it by --ignore-unknown." if setting.line else ""
        return setting.blamed(unknown_name(setting.name, known, of="the broker") + remedy)
    lines = [f"{len(unknown)} settings are none of the broker's:"]
    for setting in unknown:
        near = nearest_name(setting.name, known)
        meant = f" (did you mean {near}?)" if near else ""
        lines.append(f"  {setting.blamed(setting.name)}{meant}")
    return "\n".join([*lines, "Remove them, or go on without them by --ignore-unknown."])
