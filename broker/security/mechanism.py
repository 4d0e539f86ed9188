"""The server's side of a mechanism of SASL, as the connection sees it.

A mechanism begins an exchange for each client. `ServerExchange.answer` takes the next token of the
client and returns what follows: a challenge, a success, or a refusal. All of it is pure. What takes
long (a hash of a password) or must wait (a key that is fetched) is returned as a function, and the
connection runs it: `Costly` outside the loop, `Waiting` in the loop.

A refusal has the words that the client is sent, which say nothing of what the broker knows. Whether
a user exists must show neither in words nor in the number of messages nor in the time.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from odradek.broker.security.principal import Principal
from odradek.late import dataclass


@dataclass(frozen=True, slots=True)
class Challenge:
    """A token that the client answers with another one."""

    token: bytes
    refused: str = ""
    """The reason, for the log, if the client is refused whatever it answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """The client is this principal."""

    principal: Principal
    token: bytes = b""
    expires_at_ms: int | None = None
    """The end of what the client has shown, a token for example, in milliseconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """The client is not authenticated."""

    words: str | None = None
    """The sentence for the client. None: Kafka's sentence about invalid credentials."""
    cause: str
    """The reason for the log. It has no part of a token, but may have the name of a user."""


def _nothing() -> None:
    """Know no result."""


def _forget(_result: "Success | Rejection") -> None:
    """Keep nothing of a result."""


@dataclass(frozen=True, slots=True)
class Costly:
    """A pure function that takes long. It is run in a thread, when its turn comes."""

    function: Callable[[], "Success | Rejection"]
    known: Callable[[], "Success | Rejection | None"] = _nothing
    """Returns the result if it is known without the function by now."""
    note: Callable[["Success | Rejection"], None] = _forget
    """Takes the result, in the loop."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A function to await. The time limit of the authentication counts meanwhile."""

    function: Callable[[], Awaitable["Challenge | Success | Rejection"]]


Answer = Challenge | Success | Rejection | Costly | Waiting


class ServerExchange(Protocol):
    """The messages of one client."""

    def answer(self, token: bytes) -> Answer:
        """Return what follows from the client's next token."""


class Mechanism(Protocol):
    """A mechanism of a listener. All its clients share it."""

    @property
    def name(self) -> str:
        """The name by which clients choose it."""

    def begin(self) -> ServerExchange:
        """Return a new exchange, which has seen no token yet."""
