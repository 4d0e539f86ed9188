"""The first message of a client in OAUTHBEARER (RFC 7628).

    n,[a=NAME],^A KEY=VALUE ^A [KEY=VALUE ^A ...] ^A

^A is the byte 01, and the blanks are not there. `auth` is the only key that counts: `Bearer TOKEN`.
Other keys are extensions, which are checked for their form and ignored, as Kafka does.
"""

import re
from typing import Final

from odradek.late import dataclass

SEPARATOR: Final = "\x01"
ABANDONED: Final = b"\x01"
"""The answer of a client to a refusal, which asks for the end."""
NO_BINDING: Final = "n"
"""No binding to the channel, and none would be possible: the mechanism has no other form."""
AUTH: Final = "auth"

_HEADER: Final = re.compile(r"n,(?:a=((?:[^\x00,=]|=2C|=3D)+))?,", re.ASCII)
_PAIR: Final = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]+)")
_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9._-]+)", re.IGNORECASE)


class Malformed(ValueError):
    """The message is none of OAUTHBEARER. The text says why, and has no byte of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstMessage:
    """The parts of a message that count."""

    token: str
    authorization_id: str
    """The name that the client wants to act as; empty if it names none."""

    def __repr__(self) -> str:
        """Leave the token out: who has it is the client."""
        return f"FirstMessage(authorization_id={self.authorization_id!r})"


def parse_first_message(message: bytes) -> FirstMessage:
    """Return the parts of a message. Raises `Malformed`."""
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise Malformed("it is not UTF-8") from None
    header, _, rest = text.partition(SEPARATOR)
    found = _HEADER.fullmatch(header)
    if found is None:
        raise Malformed("it does not begin with n,[a=NAME],")
    *pairs, last, end = rest.split(SEPARATOR) if SEPARATOR in rest else ("", "")
    if last or end:
        raise Malformed("its end is not two bytes 01")
    return FirstMessage(token=_token(pairs), authorization_id=_unescaped(found[1] or ""))


def _token(pairs: list[str]) -> str:
    seen: dict[str, str] = {}
    for pair in pairs:
        found = _PAIR.fullmatch(pair)
        if found is None:
            raise Malformed("a part is not KEY=VALUE")
        if found[1] in seen:
            raise Malformed("a key is there twice")
        seen[found[1]] = found[2]
    bearer = _BEARER.fullmatch(seen.get(AUTH, ""))
    if bearer is None:
        raise Malformed("it has no auth=Bearer TOKEN")
    return bearer[1]


def _unescaped(name: str) -> str:
    """Return a name of SASL, in which a comma is =2C and an equals sign =3D."""
    return name.replace("=2C", ",").replace("=3D", "=")
