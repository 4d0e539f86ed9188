"""The session of a client that has authenticated by SASL: its end, and how it is renewed (KIP-368).

A session has an end if `connections.max.reauth.ms` is set, or if what the client has shown has one.
Before it, the client authenticates again within the connection: as the same principal, and by the
same mechanism. After it, the first request that does not begin this closes the connection. Requests
under way and long polls are still answered.

While the client authenticates again, no other request is served, and the lane takes none. It has
the same time for that as at first, from the answer to SaslHandshake on.
"""

import struct
from math import inf
from typing import Final

import trio

from odradek.broker.api.context import RequestContext
from odradek.broker.server.listener_sasl import ListenerSasl
from odradek.broker.server.sasl_dialog import (
    FRAME_MAX_BYTES,
    Authenticated,
    SaslDialog,
    SaslReply,
)
from odradek.protocol.apis.sasl import SASL_HANDSHAKE
from odradek.protocol.errors import ProtocolError

RENEWAL_SECONDS: Final = 1.0
"""The shortest time between two renewals of a session, as in Kafka."""
_KEY: Final = struct.Struct(">h")
_HANDSHAKE: Final = _KEY.pack(SASL_HANDSHAKE.key)


class SaslSession:
    """The session of one connection."""

    def __init__(
        self,
        sasl: ListenerSasl,
        authenticated: Authenticated,
        context: RequestContext,
        *,
        renewal_seconds: float,
    ) -> None:
        """`context` is that of the requests by which the client has authenticated.

        A renewal that has begun must be complete after `renewal_seconds`.
        """
        self._sasl = sasl
        self._context = context
        self._renewal: SaslDialog | None = None
        self._renewed = -inf
        """The time at which the last renewal began."""
        self.renewal_seconds = renewal_seconds
        self._renewal_ends = inf
        self.failure_seconds = sasl.failure_seconds
        self._begin(authenticated)

    def _begin(self, authenticated: Authenticated) -> None:
        self._authenticated = authenticated
        self._ends = inf
        if authenticated.session_ms:
            self._ends = trio.current_time() + authenticated.session_ms / 1000

    @property
    def is_open(self) -> bool:
        """Return True if requests are served now: it is neither over nor being renewed."""
        if self._ends == inf:
            return True
        return self._renewal is None and trio.current_time() <= self._ends

    @property
    def is_late(self) -> bool:
        """Return True if a renewal has begun and was not complete in time."""
        return trio.current_time() > self._renewal_ends

    def takes(self, frame: memoryview) -> bool:
        """Return True if a request belongs to the session itself, and not to a handler.

        Raises ProtocolError for a request after the end of the session.
        """
        if self._ends == inf:
            return False
        if self._renewal is not None:
            return True
        is_handshake = frame[: _KEY.size] == _HANDSHAKE
        now = trio.current_time()
        # A handshake that comes too soon after the last renewal is refused by the handler, as where
        # sessions have no end. The first one may come at any time, as in Kafka.
        if is_handshake and (now > self._ends or now - self._renewed >= RENEWAL_SECONDS):
            self._renewed = now
            self._renewal = SaslDialog(self._sasl, self._context, self._authenticated)
            return True
        # invariant authentication 4: No request is served after the end of its client's session.
        # plant the lane serves a session that is over
        if now > self._ends:
            raise ProtocolError("its session is over: the client did not authenticate again")
        return False

    async def reply(self, frame: memoryview) -> SaslReply:
        """Return the answer to a request that `takes` has taken. Raises ProtocolError."""
        assert self._renewal is not None, "no renewal is under way"
        # What a stranger may not send, a client may not either: the token would be copied.
        if len(frame) > FRAME_MAX_BYTES:
            raise ProtocolError(
                f"it authenticates again with a request of {len(frame)} bytes; the most are "
                f"{FRAME_MAX_BYTES}"
            )
        if self._renewal_ends == inf:
            self._renewal_ends = trio.current_time() + self.renewal_seconds
        reply = await self._renewal.reply(frame)
        if reply.refused:
            self._renewal_ends = inf  # the delay of a failure has its own end
        if reply.authenticated is not None:
            self._renewal = None
            self._renewal_ends = inf
            self._begin(reply.authenticated)
        return reply
