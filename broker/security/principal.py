"""The principal of a connection: the name under which its requests are authorised."""

from typing import Final

from odradek.late import dataclass

USER: Final = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """A principal, as `User:alice`.

    The name is any text, with further colons too: certificates have `User:CN=alice,O=a:b`.
    """

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The principal of a client that has not authenticated."""


def parse_principal(text: str) -> Principal:
    """Return the principal of a text with a colon. Raises ValueError without one."""
    kind, colon, name = text.partition(":")
    if not colon or not kind:
        raise ValueError(f"{text!r} is no principal: it has the form User:NAME")
    return Principal(kind, name)


def parse_principals(text: str) -> tuple[Principal, ...]:
    """Return the principals of a text, which semicolons separate: names may have commas.

    Raises ValueError as `parse_principal` does.
    """
    return tuple(parse_principal(each.strip()) for each in text.split(";") if each.strip())
