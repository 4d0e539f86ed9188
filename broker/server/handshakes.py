"""Connections whose client is not known yet: they are few, and none stays for long.

Before it has authenticated a connection has no place among those of clients (`max.connections`),
and no memory for requests. TLS and SASL together have `HANDSHAKE_SECONDS`, which bytes do not
renew: a client that sends one byte a second is not better than one that sends none.
`handshake_places.py` says who goes if there are too many.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from odradek.broker.api.context import RequestContext
from odradek.broker.environment.env import Connection, HandshakeFailed
from odradek.broker.security.principal import ANONYMOUS, Principal
from odradek.broker.server.failures import raised_at
from odradek.broker.server.handshake_places import HandshakePlaces, HandshakeProgress
from odradek.broker.server.known_client import (
    UNKNOWN,
    Gone,
    KnownClient,
    ListenerSecurity,
    NotAuthenticated,
)
from odradek.broker.server.memory import Account
from odradek.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from odradek.broker.server.listener_sasl import ListenerSasl

LOGGER: Final = logging.getLogger(__name__)

HANDSHAKE_SECONDS: Final = 10.0
PLACES_MAX: Final = 1_000
PART_OF_CONNECTIONS: Final = 4
"""The part of the places of connections that handshakes may have beside them: a quarter."""
MEMORY_BYTES: Final = 4 * 1024 * 1024
"""The memory for the larger requests of all clients that have not authenticated."""


class Handshakes:
    """The handshakes and authentications under way."""

    def __init__(self, connections_max: int, level: int = logging.INFO) -> None:
        """`level` is that of the log line about a connection that is closed."""
        self._level = level
        most = max(1, min(PLACES_MAX, connections_max // PART_OF_CONNECTIONS))
        self._places = HandshakePlaces(most)
        self.memory = Account(MEMORY_BYTES)
        self.success_count = 0
        """The connections whose clients have shown who they are."""
        self.failure_count = 0
        """Those that were closed before that. Clients that have gone by themselves do not count."""

    @property
    def count(self) -> int:
        return len(self._places)

    def end_all(self) -> None:
        """End the handshakes under way: the broker stops."""
        self._places.cancel_all()

    async def know(
        self,
        stream: Connection,
        security: ListenerSecurity,
        context_of: Callable[[Principal], RequestContext],
    ) -> KnownClient | None:
        """Agree on TLS, and let the client authenticate. None: the connection is to be closed.

        `context_of` returns the context of the client's requests.
        """
        if security.tls is None and security.sasl is None:
            return UNKNOWN
        scope = trio.CancelScope(deadline=trio.current_time() + HANDSHAKE_SECONDS)
        self._places.enter(scope, stream.peer)
        step = "TLS handshake" if security.tls is not None else "authentication"
        try:
            with scope:
                principal = ANONYMOUS
                if security.tls is not None:
                    note_progress = partial(self._places.note_progress, scope)
                    await stream.handshake(note_progress)
                    self._places.note_progress(scope, HandshakeProgress.HAS_TLS)
                    if security.sasl is None:
                        principal = security.tls.principal_of(stream.peer_certificate)
                    step = "authentication"
                if security.sasl is None:
                    client = KnownClient(principal=principal)
                else:
                    context = context_of(ANONYMOUS)
                    client = await self._authenticate(stream, security.sasl, context, scope)
                self.success_count += 1
                return client
            why = cause = self._why_ended(scope, step)
        except HandshakeFailed as error:
            why = str(error)
            cause = why.partition("(")[0]
        except NotAuthenticated as error:
            why, cause = str(error), error.cause
        except ProtocolError as error:
            why, cause = str(error), raised_at(error)
        except (Gone, trio.BrokenResourceError):
            LOGGER.debug("the client at %s has gone before it had authenticated", stream.peer)
            return None
        except Exception:
            # Of one connection, as in `connection.py`: the listener and its other clients go on.
            LOGGER.exception("a bug in the broker: the handshake of %s failed", stream.peer)
            why = cause = "of that error"
        finally:
            self._places.leave(scope)
        self.failure_count += 1
        LOGGER.log(
            self._level,
            "connection of %s to listener %s closed: %s",
            stream.peer,
            security.shown_name,
            why,
            extra={"cause": cause, "peer": stream.peer, "listener": security.shown_name},
        )
        return None

    def _why_ended(self, scope: trio.CancelScope, step: str) -> str:
        if scope not in self._places:
            return f"its {step} gave way to a newer connection: too many are under way"
        if trio.current_time() >= scope.deadline:
            return f"its {step} took too long: more than {HANDSHAKE_SECONDS:g} s"
        return f"the broker stops, and its {step} was not complete"

    async def _authenticate(
        self,
        stream: Connection,
        sasl: "ListenerSasl",
        context: RequestContext,
        scope: trio.CancelScope,
    ) -> KnownClient:
        # A broker without listeners of SASL imports nothing of it.
        from odradek.broker.server import sasl_stage
        from odradek.broker.server.sasl_dialog import SaslDialog
        from odradek.broker.server.sasl_session import SaslSession

        authenticated = await sasl_stage.authenticate(
            stream,
            SaslDialog(sasl, context),
            memory=self.memory,
            failure_seconds=sasl.failure_seconds,
            scope=scope,
            note_progress=partial(self._places.note_progress, scope),
        )
        return KnownClient(
            principal=authenticated.principal,
            session=SaslSession(sasl, authenticated, context, renewal_seconds=HANDSHAKE_SECONDS),
            software=context.allowance.software,
        )
