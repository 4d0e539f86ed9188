"""The lines of a file in Java's format (`java.util.Properties`), which Kafka's users have.

A name ends at the first `=`, `:` or white space that no backslash protects. A line whose last
backslash is not protected goes on in the next line. `\\t`, `\\n`, `\\r`, `\\f` and `\\uXXXX` are
characters, those beyond U+FFFF as a surrogate pair; any other character after a backslash stands
for itself.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_NAME_AND_VALUE: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)([ \t\f]*[=:]|[ \t\f])?(.*)", re.S)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.|\Z)", re.S)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK: Final = " \t\f"


class Property(NamedTuple):
    """One setting of a file. `line` is the number of its first line, `text` all of them joined."""

    line: int
    text: str
    name: str
    value: str


def properties(text: str) -> Iterator[Property]:
    """Yield the settings of a file in their order. A name, and a value, may be empty."""
    for line, logical in _logical_lines(text):
        match = _NAME_AND_VALUE.fullmatch(logical)
        assert match is not None, logical  # each part of it may be empty
        name, value = (_unescaped(part.strip(_BLANK)) for part in (match[1], match[3]))
        yield Property(line, logical, name, value)


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
    found = _ESCAPE.sub(lambda match: _character(match[1]), text)
    # Java's characters are units of UTF-16, so two \u are one character beyond U+FFFF.
    return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _character(escape: str) -> str:
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _CONTROLS.get(escape, escape)
