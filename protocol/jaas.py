"""Lines of JAAS, in which Kafka's users have names and passwords.

    MODULE required username="alice" password="secret" user_alice="secret";

The module is the name of a class in Java. Nothing is loaded here: the caller knows some modules by
name and refuses all others. Only one module with options is read, as in Kafka's
`sasl.jaas.config`.
"""

import re
from dataclasses import field
from typing import Final

from odradek.late import dataclass

FLAGS: Final = ("required", "requisite", "sufficient", "optional")
PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_QUOTED: Final = r'"((?:[^"\\]|\\.)*)"'
_VALUE: Final = rf'\s*=\s*(?:{_QUOTED}|([^\s";=]+))\s*'
_OPTION: Final = re.compile(rf"\s*([A-Za-z0-9_.$@-]+){_VALUE}", re.DOTALL)
_QUOTED_NAME: Final = re.compile(rf"\s*{_QUOTED}{_VALUE}", re.DOTALL)


class JaasError(ValueError):
    """A line that is not JAAS: the end of a sentence, which has no part of the line."""


@dataclass(frozen=True, slots=True)
class JaasLine:
    """One module and its options, in their order."""

    module: str
    options: dict[str, str] = field(repr=False)


def parse_jaas(text: str) -> JaasLine:
    """Return what a line has. Raises `JaasError`, whose text has no password."""
    body = text.strip()
    if not body.endswith(";"):
        raise JaasError("it does not end with a semicolon")
    words = body[:-1].split(None, 2)
    if len(words) < 2 or words[1].lower() not in FLAGS:
        raise JaasError(f'it is not MODULE {FLAGS[0]} NAME="VALUE" ...;')
    options: dict[str, str] = {}
    rest = words[2] if len(words) == 3 else ""
    while rest.strip():
        found = _OPTION.match(rest) or _QUOTED_NAME.match(rest)
        if found is None:
            number = len(options) + 1
            raise JaasError(
                f'its option number {number} is not NAME="VALUE"; more than one module is not read'
            )
        name, quoted, bare = found.groups()
        name = _unescaped(name)
        if name in options:
            raise JaasError(f"it has the option {name} twice")
        options[name] = bare if quoted is None else _unescaped(quoted)
        rest = rest[found.end() :]
    return JaasLine(words[0], options)


def _unescaped(text: str) -> str:
    """Return a quoted text as Java's tokenizer reads it: a backslash keeps the next character."""
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
