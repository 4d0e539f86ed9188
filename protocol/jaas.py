"""Lines of JAAS, in which Kafka's users have names and passwords.

    MODULE required username="alice" password="secret" user_alice="secret";

The module is the name of a class in Java. Nothing is loaded here: the caller knows some modules by
name and refuses all others. Only one module with options is read, as in Kafka's
`sasl.jaas.config`.

A line is read as Kafka reads it, by the rules of Java's StreamTokenizer: the same line must be the
same password on both sides. So a text may stand in double or in single quotes and ends with its
line. A backslash begins an escape (`\\n` is a line feed, `\\101` is A, `\\x` is x). A comment
begins with a slash, or stands between `/*` and `*/`. A bare value has letters, digits and `_-.$`,
and does not begin as a number. Three things are refused that Kafka takes: an option that stands
twice, one whose name is a number, and a text without its closing quote.
"""

from collections.abc import Iterator
from dataclasses import field
from typing import Final

from odradek.late import dataclass

FLAGS: Final = ("required", "requisite", "sufficient", "optional")
PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
QUOTES: Final = "\"'"
LINE_ENDS: Final = "\r\n"
OCTAL: Final = "01234567"
ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
"""Any other sign behind a backslash stands for itself."""
NUMBER: Final = "0123456789.-"
_FIRST_OTHER: Final = "\xa0"
"""From this sign on, all are letters to Java's tokenizer."""


class JaasError(ValueError):
    """A line that is not JAAS: the end of a sentence, which has no part of the line."""


@dataclass(frozen=True, slots=True)
class JaasLine:
    """One module and its options, in their order."""

    module: str
    options: dict[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Token:
    """A word or a quoted text; a number, whose text Java does not keep; or a single sign."""

    text: str | None = field(default=None, repr=False)
    sign: str = field(default="", repr=False)


def parse_jaas(text: str) -> JaasLine:
    """Return what a line has. Raises `JaasError`, whose text has no password."""
    tokens = list(_tokens(text))
    if not tokens or tokens[-1].sign != ";":
        raise JaasError("it does not end with a semicolon")
    if len(tokens) < 3 or not tokens[0].text or (tokens[1].text or "").lower() not in FLAGS:
        raise JaasError(f'it is not MODULE {FLAGS[0]} NAME="VALUE" ...;')
    module, given = tokens[0].text, tokens[2:-1]
    options: dict[str, str] = {}
    for at in range(0, len(given), 3):
        name, equals, value = (*given[at : at + 3], _Token(), _Token())[:3]
        if name.text is None or equals.sign != "=" or value.text is None:
            number = len(options) + 1
            raise JaasError(
                f'its option number {number} is not NAME="VALUE"; more than one module is not read'
            )
        if name.text in options:
            raise JaasError(f"it has the option {name.text} twice")
        options[name.text] = value.text
    return JaasLine(module, options)


def _tokens(text: str) -> Iterator[_Token]:
    """Yield the tokens of a line. Raises `JaasError`."""
    at = 0
    while at < len(text):
        sign = text[at]
        if sign <= " ":
            at += 1
        elif text.startswith("/*", at):
            end = text.find("*/", at + 2)
            at = len(text) if end < 0 else end + 2
        elif sign == "/":  # one is enough
            at = _next_of(text, LINE_ENDS, at)
        elif sign in QUOTES:
            found, at = _quoted(text, at + 1, sign)
            yield _Token(found)
        elif sign in NUMBER and (end := _after_number(text, at)) > at:
            at = end
            yield _Token()
        elif _is_of_word(sign) and sign not in NUMBER:
            end = at + 1
            while end < len(text) and _is_of_word(text[end]):
                end += 1
            yield _Token(text[at:end])
            at = end
        else:
            at += 1
            yield _Token(sign=sign)


def _next_of(text: str, signs: str, at: int) -> int:
    """Return where one of these signs is, from `at` on; the end if there is none."""
    while at < len(text) and text[at] not in signs:
        at += 1
    return at


def _is_of_word(sign: str) -> bool:
    is_letter = sign.isascii() and sign.isalpha()
    return is_letter or sign in NUMBER or sign in "_$" or sign >= _FIRST_OTHER


def _after_number(text: str, at: int) -> int:
    """Return the end of the number that begins here; `at` if it is only a minus sign."""
    end = at + (text[at] == "-")
    if end > at and not (end < len(text) and text[end] in "0123456789."):
        return at
    has_point = False
    while end < len(text) and text[end] in "0123456789." and not (has_point and text[end] == "."):
        has_point = has_point or text[end] == "."
        end += 1
    return end


def _quoted(text: str, at: int, quote: str) -> tuple[str, int]:
    """Return the text up to its closing quote, and the place behind. Raises `JaasError`."""
    found: list[str] = []
    while at < len(text) and text[at] not in (quote, *LINE_ENDS):
        sign = text[at]
        at += 1
        if sign == "\\" and at < len(text):
            sign, at = _sign_of_escape(text, at)
        found.append(sign)
    if at >= len(text) or text[at] != quote:
        raise JaasError("a text in it has no closing quote in its line")
    return "".join(found), at + 1


def _sign_of_escape(text: str, at: int) -> tuple[str, int]:
    """Return the sign that a backslash stands for with what follows, and the place behind."""
    sign = text[at]
    if sign not in OCTAL:
        return ESCAPES.get(sign, sign), at + 1
    most = at + (3 if sign <= "3" else 2)
    end = at + 1
    while end < min(most, len(text)) and text[end] in OCTAL:
        end += 1
    return chr(int(text[at:end], 8)), end
