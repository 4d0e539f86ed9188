"""Reads a regular expression in RE2's syntax, as Kafka's brokers take it (RE2/J).

What RE2 refuses is refused: look-around, back-references, possessive quantifiers, more than 1,000
repetitions. Groups only group, and greedy or not makes no difference, for nobody asks here where a
part matched.

Differs from RE2/J: groups are nested at most 100 deep; `\\p{...}` knows the general categories (L,
Lu, Nd) and no scripts; ignoring case compares single characters' upper and lower case.
"""

import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

REPEAT_MAX: Final = 1000
DEPTH_MAX: Final = 100
LAST_CHAR: Final = 0x10FFFF

Ranges = tuple[tuple[int, int], ...]


class BadPattern(Exception):
    """Not a pattern that is served; the text says why."""


class Place(StrEnum):
    """What an assertion asks of the place where it stands."""

    TEXT_START = "A"
    TEXT_END = "z"
    LINE_START = "^"
    LINE_END = "$"
    WORD_BOUNDARY = "b"
    NO_WORD_BOUNDARY = "B"


@dataclass(frozen=True, slots=True)
class CharClass:
    """A set of characters; `categories` are Unicode's, each with whether it is left out."""

    ranges: Ranges = ()
    categories: tuple[tuple[str, bool], ...] = ()
    is_negated: bool = False
    ignores_case: bool = False

    def has(self, char: str) -> bool:
        variants = {char, char.lower(), char.upper()} if self.ignores_case else {char}
        return any(map(self._lists, variants)) != self.is_negated

    def _lists(self, char: str) -> bool:
        if len(char) != 1:  # the upper case of one character may be two
            return False
        code = ord(char)
        return any(low <= code <= high for low, high in self.ranges) or any(
            unicodedata.category(char).startswith(name) != is_left_out
            for name, is_left_out in self.categories
        )


@dataclass(frozen=True, slots=True)
class Chars:
    chars: CharClass


@dataclass(frozen=True, slots=True)
class Assertion:
    place: Place


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`most` is None for any number."""

    item: "Node"
    least: int
    most: int | None


Node = Chars | Assertion | Sequence | Choice | Repeat


def parse(text: str) -> Node:
    """Raises BadPattern."""
    reader = _Reader(text)
    node = reader.choice(frozenset(), 0)
    if reader.rest:
        raise BadPattern("a ) closes nothing")
    return node


def _between(*pairs: str) -> Ranges:
    return tuple((ord(pair[0]), ord(pair[-1])) for pair in pairs)


DIGITS: Final = _between("09")
WORD: Final = _between("09", "AZ", "__", "az")
SPACE: Final = _between("\t\n", "\f\r", "  ")
ANY: Final[Ranges] = ((0, LAST_CHAR),)
NEWLINE: Final = _between("\n")
PERL: Final = {"d": DIGITS, "w": WORD, "s": SPACE}
POSIX: Final = {
    "alnum": _between("09", "AZ", "az"),
    "alpha": _between("AZ", "az"),
    "ascii": ((0, 0x7F),),
    "blank": _between("\t", " "),
    "cntrl": ((0, 0x1F), (0x7F, 0x7F)),
    "digit": DIGITS,
    "graph": _between("!~"),
    "lower": _between("az"),
    "print": _between(" ~"),
    "punct": _between("!/", ":@", "[`", "{~"),
    "space": _between("\t\r", " "),
    "upper": _between("AZ"),
    "word": WORD,
    "xdigit": _between("09", "AF", "af"),
}
PLACES: Final = {place.value: place for place in Place if place.value.isalpha()}
CONTROL: Final = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
HEX_DIGITS: Final = "0123456789abcdefABCDEF"
CATEGORIES: Final = frozenset(
    major + minor
    for major, minors in {
        "C": "cfos",
        "L": "lmotu",
        "M": "cen",
        "N": "dlo",
        "P": "cdefios",
        "S": "ckmo",
        "Z": "lps",
    }.items()
    for minor in ("", *minors)
)
QUANTIFIERS: Final[dict[str, tuple[int, int | None]]] = {
    "*": (0, None),
    "+": (1, None),
    "?": (0, 1),
}


def is_word(char: str) -> bool:
    """Whether `\\w` matches it; "" is none."""
    return bool(char) and any(low <= ord(char) <= high for low, high in WORD)


def complement(ranges: Ranges) -> Ranges:
    """Every character that is not in `ranges`."""
    found, at = [], 0
    for low, high in sorted(ranges):
        if at < low:
            found.append((at, low - 1))
        at = max(at, high + 1)
    if at <= LAST_CHAR:
        found.append((at, LAST_CHAR))
    return tuple(found)


Flags = frozenset[str]


class _Reader:
    """Reads from the front; `rest` is what is left."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._names: set[str] = set()

    @property
    def rest(self) -> bool:
        return self._at < len(self._text)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, wanted: str) -> bool:
        if self._text.startswith(wanted, self._at):
            self._at += len(wanted)
            return True
        return False

    def _next(self) -> str:
        char = self._peek()
        self._at += 1
        return char

    def _until(self, end: str, what: str) -> str:
        found = self._text.find(end, self._at)
        if found < 0:
            raise BadPattern(f"{what} has no end")
        text, self._at = self._text[self._at : found], found + len(end)
        return text

    # what stands where

    def choice(self, flags: Flags, depth: int) -> Node:
        """Up to the end, or the bracket that closes the group."""
        if depth > DEPTH_MAX:
            raise BadPattern(f"groups are nested more than {DEPTH_MAX} deep")
        options: list[Node] = []
        items: list[Node] = []
        is_repeated = False
        while self.rest and self._peek() != ")":
            if self._take("|"):
                options.append(Sequence(tuple(items)))
                items, is_repeated = [], False
                continue
            counts = self._quantifier()
            if counts is not None:
                if not items or is_repeated:
                    raise BadPattern("a repetition has nothing to repeat")
                items[-1] = Repeat(items[-1], *counts)
                is_repeated = True
                continue
            is_repeated = False
            if self._take("(?"):
                flags = self._special_group(flags, depth, items)
            elif self._take("\\Q"):
                items += self._quoted(flags)
            else:
                items.append(self._item(flags, depth))
        options.append(Sequence(tuple(items)))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _quantifier(self) -> tuple[int, int | None] | None:
        if self._peek() in QUANTIFIERS:
            counts = QUANTIFIERS[self._next()]
        elif self._peek() == "{" and (found := self._counts()) is not None:
            counts = found
        else:
            return None
        self._take("?")  # as few as possible: the same set of texts
        return counts

    def _counts(self) -> tuple[int, int | None] | None:
        """What is in braces; None if they are two characters like others."""
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : max(end, 0)].partition(",")
        if end < 0 or not _is_number(least) or (most and not _is_number(most)):
            return None
        self._at = end + 1
        low = int(least[:5])
        high = (int(most[:5]) if most else None) if comma else low
        if max(low, high or 0) > REPEAT_MAX or (high is not None and high < low):
            raise BadPattern(f"{{{least}{comma}{most}}} is no number of repetitions")
        return low, high

    def _item(self, flags: Flags, depth: int) -> Node:
        char = self._next()
        if char == "(":
            return self._closed(self.choice(flags, depth + 1))
        if char == "[":
            return Chars(self._char_class(flags))
        if char == ".":
            return Chars(CharClass(ANY if "s" in flags else complement(NEWLINE)))
        if char == "^":
            return Assertion(Place.LINE_START if "m" in flags else Place.TEXT_START)
        if char == "$":
            return Assertion(Place.LINE_END if "m" in flags else Place.TEXT_END)
        if char == "\\":
            if self._peek() in PLACES:
                return Assertion(PLACES[self._next()])
            ranges, categories = self._escape()
            return Chars(CharClass(ranges, categories, ignores_case="i" in flags))
        return _literal(ord(char), flags)

    def _closed(self, node: Node) -> Node:
        if not self._take(")"):
            raise BadPattern("a ( is not closed")
        return node

    def _special_group(self, flags: Flags, depth: int, items: list[Node]) -> Flags:
        """After `(?`: a group, added to `items`, or other flags for what follows."""
        if self._take("P<") or self._take("<"):
            name = self._until(">", "the name of a group")
            if name in self._names or not name or not all(map(is_word, name)):
                raise BadPattern(f"{name!r} is no name for a group")
            self._names.add(name)
            items.append(self._closed(self.choice(flags, depth + 1)))
            return flags
        inner, is_off, has_any = set(flags), False, False
        while (char := self._next()) not in (":", ")"):
            if char == "-" and not is_off:
                is_off, has_any = True, False
            elif char and char in "imsU":
                has_any = True
                inner = inner - {char} if is_off else inner | {char}
            else:
                raise BadPattern(
                    f"(?{char} begins no group that can be matched without trying back"
                )
        if is_off and not has_any:
            raise BadPattern("(?-) switches nothing off")
        if char == ")":
            return frozenset(inner)
        items.append(self._closed(self.choice(frozenset(inner), depth + 1)))
        return flags

    def _quoted(self, flags: Flags) -> list[Node]:
        end = self._text.find("\\E", self._at)
        quoted = self._text[self._at :] if end < 0 else self._text[self._at : end]
        self._at += len(quoted) + (0 if end < 0 else 2)
        return [_literal(ord(char), flags) for char in quoted]

    def _escape(self) -> tuple[Ranges, tuple[tuple[str, bool], ...]]:
        """After a backslash: ranges, and categories."""
        char = self._next()
        if char and char in "pP":
            name = self._until("}", "\\p{") if self._take("{") else self._next()
            is_negated = (char == "P") != name.startswith("^")
            name = name.removeprefix("^")
            if name == "Any":
                return (() if is_negated else ANY), ()
            if name not in CATEGORIES:
                raise BadPattern(f"no category of characters is called {name!r}")
            return (), ((name, is_negated),)
        if char and char.lower() in PERL:
            ranges = PERL[char.lower()]
            return (ranges if char.islower() else complement(ranges)), ()
        code = self._escaped_code(char)
        return ((code, code),), ()

    def _escaped_code(self, char: str) -> int:
        if char in CONTROL:
            return CONTROL[char]
        if char == "x":
            has_braces = self._take("{")
            digits = self._until("}", "\\x{") if has_braces else self._next() + self._next()
            is_complete = has_braces or len(digits) == 2
            if _is_number(digits, HEX_DIGITS) and is_complete and len(digits) <= 8:
                code = int(digits, 16)
                if code <= LAST_CHAR:
                    return code
        elif char and (char == "0" or (char in "1234567" and self._peek() in set("01234567"))):
            digits = char
            while len(digits) < 3 and self._peek() and self._peek() in "01234567":
                digits += self._next()
            return int(digits, 8)
        elif char and not (char.isascii() and char.isalnum()):
            return ord(char)
        raise BadPattern(f"\\{char} means nothing")

    def _char_class(self, flags: Flags) -> CharClass:
        """After `[`."""
        is_negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        categories: list[tuple[str, bool]] = []
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            if not self.rest:
                raise BadPattern("a [ is not closed")
            if self._peek() == "[" and (named := self._posix()) is not None:
                ranges += named
                continue
            low = self._class_item(ranges, categories)
            if low is None:
                continue
            high = low
            following = self._text[self._at + 1 : self._at + 2]
            if self._peek() == "-" and following and following != "]":
                self._at += 1
                last = self._class_item([], [])
                if last is None or last < low:
                    raise BadPattern("a range of characters runs backwards")
                high = last
            ranges.append((low, high))
        self._at += 1
        return CharClass(tuple(ranges), tuple(categories), is_negated, "i" in flags)

    def _class_item(
        self, ranges: list[tuple[int, int]], categories: list[tuple[str, bool]]
    ) -> int | None:
        """One character; None if it is a class, which is then added."""
        char = self._next()
        if char != "\\":
            return ord(char)
        found, of_category = self._escape()
        if len(found) == 1 and found[0][0] == found[0][1]:
            return found[0][0]
        ranges += found
        categories += of_category
        return None

    def _posix(self) -> Ranges | None:
        end = self._text.find(":]", self._at + 2)
        if not self._text.startswith("[:", self._at) or end < 0:
            return None
        name = self._text[self._at + 2 : end]
        if name.removeprefix("^") not in POSIX:
            raise BadPattern(f"[:{name}:] is no class of characters")
        self._at = end + 2
        ranges = POSIX[name.removeprefix("^")]
        return complement(ranges) if name.startswith("^") else ranges


def _literal(code: int, flags: Flags) -> Chars:
    return Chars(CharClass(((code, code),), ignores_case="i" in flags))


def _is_number(text: str, digits: str = "0123456789") -> bool:
    return bool(text) and all(char in digits for char in text)
