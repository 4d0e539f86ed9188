"""Connections whose client is not known yet: they are few, and none stays for long.

Before its handshake a connection has no place among those of clients (`max.connections`), and no
memory for requests. It has `HANDSHAKE_SECONDS`, which bytes do not renew: a client that sends one
byte a second is not better than one that sends none. If there are too many, the oldest goes, which
is a silent one: an honest client has agreed after some milliseconds. SASL, which comes after TLS,
belongs into the same time.
"""

import logging
from typing import Final, Protocol

import trio

from odradek.broker.environment.env import Connection, HandshakeFailed, TlsContext
from odradek.broker.security.principal import Principal

LOGGER: Final = logging.getLogger(__name__)

HANDSHAKE_SECONDS: Final = 10.0
PLACES_MAX: Final = 1_000
PART_OF_CONNECTIONS: Final = 4
"""The part of the places of connections that handshakes may have beside them: a quarter."""


class ServedTls(Protocol):
    """The TLS of a listener."""

    @property
    def name(self) -> str: ...

    @property
    def current(self) -> TlsContext: ...

    def principal_of(self, certificate: bytes | None) -> Principal:
        """Return the principal of a client by its certificate. Raises `HandshakeFailed`."""


class Handshakes:
    """The handshakes under way."""

    def __init__(self, connections_max: int, level: int = logging.INFO) -> None:
        """`level` is that of the log line about a connection that is closed."""
        self._level = level
        self._places = max(1, min(PLACES_MAX, connections_max // PART_OF_CONNECTIONS))
        self._scopes: dict[trio.CancelScope, None] = {}

    @property
    def count(self) -> int:
        return len(self._scopes)

    def end_all(self) -> None:
        """End the handshakes under way: the broker stops."""
        for scope in self._scopes:
            scope.cancel()

    async def principal_of(self, stream: Connection, tls: ServedTls) -> Principal | None:
        """Agree on TLS. Return the client's principal, None if the connection is to be closed."""
        if len(self._scopes) >= self._places:
            next(iter(self._scopes)).cancel()
        scope = trio.CancelScope(deadline=trio.current_time() + HANDSHAKE_SECONDS)
        self._scopes[scope] = None
        why = "its TLS handshake took too long, or too many others are under way"
        cause = "handshake"
        try:
            with scope:
                await stream.handshake()
                return tls.principal_of(stream.peer_certificate)
        except HandshakeFailed as error:
            why = str(error)
            cause = f"{why.partition('(')[0]}"
        except Exception:
            # Of one connection, as in `connection.py`: the listener and its other clients go on.
            LOGGER.exception("a bug in the broker: the handshake of %s failed", stream.peer)
            why = "of that error"
        finally:
            del self._scopes[scope]
        LOGGER.log(
            self._level,
            "connection of %s to listener %s closed: %s",
            stream.peer,
            tls.name,
            why,
            extra={"cause": cause},
        )
        return None
