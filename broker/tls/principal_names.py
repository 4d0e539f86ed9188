"""The names of principals in certificates, as Java writes them.

A name is that of `X500Principal.getName()`, in the form of RFC 2253. `rfc4514_string` of the
library differs in two ways. Java escapes `=` and `#` wherever they stand. And only the nine
attributes of the RFC, and the user id, have a word; any other is `OID=#` and the hex of its DER.

`ssl.principal.mapping.rules` then chooses a part of the name. Its patterns are RE2's, which match
in linear time whatever a certificate says. So lookahead and backreferences are refused at start.
"""

import re
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.config.settings import ConfigError, shortened
from odradek.broker.environment.env import HandshakeFailed
from odradek.broker.environment.patterns import compiled
from odradek.broker.security.principal import ANONYMOUS, USER, Principal
from odradek.late import dataclass

if TYPE_CHECKING:
    from cryptography.x509 import NameAttribute

WORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
ESCAPED: Final = frozenset(',=+<>#;"\\')
_RULE: Final = re.compile(
    r"(?:RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)|DEFAULT)\s*(?:,|\Z)"
)
_GROUP: Final = re.compile(r"\\(.)|\$([0-9])", re.S)


class NoRule(HandshakeFailed):
    """No rule of ssl.principal.mapping.rules matches a name."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule; `pattern` is None for DEFAULT."""

    pattern: Any = None
    replacement: str = ""
    case: str = ""

    def to_name(self, name: str) -> str | None:
        """Return the name that the rule makes; None if it does not match."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        made: str = self.pattern.sub(self._replacement, name)
        return {"L": made.lower, "U": made.upper}.get(self.case, lambda: made)()

    def _replacement(self, match: Any) -> str:
        return _GROUP.sub(lambda it: it[1] or match.group(int(it[2])) or "", self.replacement)


class PrincipalRules:
    """The rules of a listener."""

    def __init__(self, text: str) -> None:
        """Read the value of ssl.principal.mapping.rules. Raises `ConfigError`."""
        self._rules: list[_Rule] = []
        at, text = 0, text.strip()
        while at < len(text):
            match = _RULE.match(text, at)
            if match is None:
                raise ConfigError(
                    "ssl.principal.mapping.rules is DEFAULT, or RULE:pattern/replacement/ with L "
                    f"or U behind it, separated by commas, not {shortened(text[at:])!r}."
                )
            self._rules.append(_Rule() if match[1] is None else _rule(*match.group(1, 2, 3)))
            at = match.end()
            at += len(text[at:]) - len(text[at:].lstrip())

    def principal_of(self, certificate: bytes | None) -> Principal:
        """Return the principal that a certificate stands for. Raises `NoRule`."""
        if certificate is None:
            return ANONYMOUS
        return Principal(USER, self.name_of(distinguished_name(certificate)))

    def name_of(self, name: str) -> str:
        """Return what the first rule that matches makes of a name. Raises `NoRule`."""
        for rule in self._rules:
            made = rule.to_name(name)
            if made is not None:
                return made
        raise NoRule(f"no rule of ssl.principal.mapping.rules matches {shortened(name)!r}")


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    try:
        found = compiled(pattern)
    except ValueError:
        raise ConfigError(
            f"ssl.principal.mapping.rules has the pattern {shortened(pattern)!r}, which RE2 does "
            "not take (it has no lookahead and no backreferences)."
        ) from None
    named = [int(it[2]) for it in _GROUP.finditer(replacement) if it[2]]
    if any(number > found.groups for number in named):
        raise ConfigError(
            f"ssl.principal.mapping.rules: {shortened(replacement)!r} names a group that the "
            f"pattern {shortened(pattern)!r} does not have."
        )
    return _Rule(found, replacement, case)


def distinguished_name(certificate: bytes) -> str:
    """Return the name of the subject of a certificate in DER, as Java writes it.

    Raises `HandshakeFailed` for a name that the library cannot read, though OpenSSL has taken the
    certificate: one in Latin-1 whose tag says that it is ASCII, say.
    """
    from cryptography import x509

    try:
        subject = x509.load_der_x509_certificate(certificate).subject
        return ",".join("+".join(map(_attribute, rdn)) for rdn in reversed(subject.rdns))
    except Exception as error:  # the library has a class of its own for some of them
        raise HandshakeFailed(
            f"its certificate has a name that cannot be read ({error}); use UTF-8 in it"
        ) from None


def _attribute(attribute: "NameAttribute[Any]") -> str:
    word = WORDS.get(attribute.oid.dotted_string)
    if word is None:
        return f"{attribute.oid.dotted_string}=#{_der_value(attribute).hex()}"
    value = attribute.value
    text = value if isinstance(value, str) else value.decode("latin-1")
    escaped = "".join(f"\\{it}" if it in ESCAPED else it for it in text).replace("\0", "\\00")
    if escaped.startswith(" "):
        escaped = f"\\{escaped}"
    if escaped.endswith(" ") and len(text) > 1:
        escaped = f"{escaped[:-1]}\\ "
    return f"{word}={escaped}"


def _der_value(attribute: "NameAttribute[Any]") -> bytes:
    """Return the DER of an attribute's value, from that of a name which has only this one."""
    from cryptography import x509

    inside = x509.Name([attribute]).public_bytes()
    for _ in range(3):  # the name, its only part, the attribute
        inside = _content(inside)
    oid_bytes = _content(inside)
    return inside[inside.index(oid_bytes) + len(oid_bytes) :]


def _content(der: bytes) -> bytes:
    """Return the content of the element that begins `der`."""
    length, start = der[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[2:start], "big")
    return der[start : start + length]
