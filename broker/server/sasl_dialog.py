"""The requests by which a client authenticates, and their answers (KIP-152, KIP-368), without I/O.

    ApiVersions       once, or not at all; a few that are refused do not count
    SaslHandshake     chooses the mechanism
    SaslAuthenticate  as often as the mechanism needs

After version 0 of SaslHandshake the tokens are bare frames, without a header, and a refusal has no
answer. A client that authenticates again within its connection begins with SaslHandshake.

A refusal is answered and then ends the connection. Whatever is no request of this dialog ends it
without an answer (`ProtocolError`): nothing else of a stranger is parsed.
"""

import struct
from dataclasses import field, replace
from enum import Enum, auto
from typing import Any, Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.late_table import LateTable
from odradek.broker.api.versions import api_versions
from odradek.broker.environment.env import Buffer
from odradek.broker.security.mechanism import Challenge, Rejection, ServerExchange, Success
from odradek.broker.security.principal import Principal
from odradek.broker.server.listener_sasl import ListenerSasl
from odradek.late import dataclass
from odradek.protocol.api import Api
from odradek.protocol.apis.sasl import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsResponse
from odradek.protocol.connection import FRAME_MIN_BYTES, Request, ServerProtocol
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.text import printable, shortened

_LENGTH: Final = struct.Struct(">i")
FRAME_MAX_BYTES: Final = 64 * 1024
"""The largest request of a client that has not authenticated. Tokens of OAuth take some KiB."""
TOKENS_MAX: Final = 10
"""The most tokens of one authentication. SCRAM has two."""
REFUSED_VERSIONS_MAX: Final = 5
"""The most ApiVersions that may be refused. A client repeats it once, with a lower version."""


class _Step(Enum):
    VERSIONS = auto()
    """ApiVersions or SaslHandshake may come."""
    HANDSHAKE = auto()
    """SaslHandshake must come."""
    AUTHENTICATE = auto()
    """SaslAuthenticate must come."""
    TOKEN = auto()
    """A bare token must come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated:
    """A client that has authenticated."""

    principal: Principal
    mechanism: str
    session_ms: int
    """How long its session lasts from now on; 0 if it has no end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslReply:
    """The answer to one frame, and what follows."""

    parts: list[Buffer] = field(default_factory=list)
    """The answer as its bytes; empty if there is none."""
    refused: str = ""
    """The reason, for the log, if the connection is to be closed after the answer."""
    cause: str = ""
    """What groups the log lines about such reasons. It has no words of the client."""
    authenticated: Authenticated | None = None


class SaslDialog:
    """One authentication of one client."""

    def __init__(
        self, sasl: ListenerSasl, context: RequestContext, again: Authenticated | None = None
    ) -> None:
        """`context` is that of ApiVersions. `again`: who the client was before, if anybody."""
        self._sasl = sasl
        self._context = context
        self._again = again
        self._protocol = ServerProtocol(_apis_of(context))
        self._step = _Step.HANDSHAKE if again else _Step.VERSIONS
        self._mechanism = ""
        self._exchange: ServerExchange
        self._tokens = 0
        self._refused_versions = 0
        self.refusal: SaslReply | None = None
        """The reason why the client will be refused, if it has been told so in a challenge."""

    @property
    def has_mechanism(self) -> bool:
        """Return True once the client has chosen a mechanism that the listener has."""
        return bool(self._mechanism)

    @property
    def frame_min_bytes(self) -> int:
        """The size of the smallest frame that may come next."""
        return 0 if self._step is _Step.TOKEN else FRAME_MIN_BYTES

    async def reply(self, frame: memoryview) -> SaslReply:
        """Return the answer to a frame. Raises ProtocolError for one that has none."""
        try:
            return await self._reply_to(frame)
        except ProtocolError:
            # Whatever the client does after that challenge, the log has the reason for it.
            if self.refusal is not None:
                raise ProtocolError(self.refusal.refused) from None
            raise

    async def _reply_to(self, frame: memoryview) -> SaslReply:
        if self._step is _Step.TOKEN:
            return await self._reply_to_token(bytes(frame))
        request = self._protocol.parse(frame)
        if self._step is _Step.AUTHENTICATE:
            if request.api is SASL_AUTHENTICATE:
                return await self._reply_to_authenticate(request)
            return self._out_of_order(request)
        if request.api is SASL_HANDSHAKE:
            return self._reply_to_handshake(request)
        if request.api is API_VERSIONS and self._step is _Step.VERSIONS:
            return await self._reply_to_versions(request)
        raise ProtocolError(f"{request.api.name} comes before SaslHandshake")

    async def _reply_to_versions(self, request: Request) -> SaslReply:
        is_known = request.unsupported_version is None
        context = replace(self._context, api_version=request.version, is_version_known=is_known)
        answer = await api_versions(context, request.body)
        if answer.error_code == ErrorCode.NONE:
            self._step = _Step.HANDSHAKE
            return self._reply(request, answer)
        self._refused_versions += 1
        if self._refused_versions > REFUSED_VERSIONS_MAX:
            raise ProtocolError("it repeats an ApiVersions that was refused")
        return self._reply(request, answer)

    def _reply_to_handshake(self, request: Request) -> SaslReply:
        names, wanted = self._sasl.names, request.body.mechanism
        if self._again is not None and wanted != self._again.mechanism:
            return SaslReply(
                refused="it would authenticate again by another mechanism than "
                f"{self._again.mechanism}",
                cause="another mechanism",
            )
        if wanted not in names:
            answer = SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=names
            )
            # A client that asks which mechanisms there are names none.
            named = (
                f"not the mechanism {printable(shortened(wanted))}" if wanted else "it names none"
            )
            return self._reply(
                request,
                answer,
                refused=f"this listener has {', '.join(names)}, and {named}",
                cause="a mechanism that is not there",
            )
        self._mechanism = wanted
        self._exchange = self._sasl.mechanisms[wanted].begin()
        self._step = _Step.TOKEN if request.version == 0 else _Step.AUTHENTICATE
        return self._reply(
            request, SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=names)
        )

    async def _reply_to_authenticate(self, request: Request) -> SaslReply:
        found = await self._next(bytes(request.body.auth_bytes))
        if isinstance(found, Rejection):
            answer = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=found.words or self._invalid_credentials,
                auth_bytes=b"",
            )
            return self._reply(request, answer, refused=self._why(found), cause=self._mechanism)
        authenticated = self._to_authenticated(found) if isinstance(found, Success) else None
        answer = SaslAuthenticateResponse(
            error_code=ErrorCode.NONE,
            error_message="",  # as Kafka sends it
            auth_bytes=found.token,
            session_lifetime_ms=authenticated.session_ms if authenticated else 0,
        )
        return self._reply(request, answer, authenticated=authenticated)

    async def _reply_to_token(self, token: bytes) -> SaslReply:
        found = await self._next(token)
        if isinstance(found, Rejection):
            return SaslReply(refused=self._why(found), cause=self._mechanism)
        return SaslReply(
            parts=[_LENGTH.pack(len(found.token)), found.token],
            authenticated=self._to_authenticated(found) if isinstance(found, Success) else None,
        )

    def _out_of_order(self, request: Request) -> SaslReply:
        """Return the refusal of another request than SaslAuthenticate."""
        code = ErrorCode.ILLEGAL_SASL_STATE
        answer: object
        if request.api is SASL_HANDSHAKE:
            answer = SaslHandshakeResponse(error_code=code, mechanisms=())
        else:
            answer = ApiVersionsResponse(error_code=code, api_keys=())
        return self._reply(
            request,
            answer,
            refused=f"{request.api.name} comes before SaslAuthenticate",
            cause="another request",
        )

    async def _next(self, token: bytes) -> Challenge | Success | Rejection:
        self._tokens += 1
        if self._tokens > TOKENS_MAX:
            return Rejection(cause="it sends more tokens than any mechanism has")
        found = await self._sasl.finish(
            self._exchange.answer(token),
            address=self._context.host,
            is_known=self._again is not None,
        )
        if isinstance(found, Challenge) and found.refused:
            why = self._why(Rejection(cause=found.refused))
            self.refusal = SaslReply(refused=why, cause=self._mechanism)
        again = self._again
        if again is None or not isinstance(found, Success) or found.principal == again.principal:
            return found
        before, now = again.principal, found.principal
        return Rejection(
            words="Cannot change principals during re-authentication from "
            f"{before.kind}.{before.name}: {now.kind}.{now.name}",
            cause=f"it was {before} and would be {now}",
        )

    def _to_authenticated(self, success: Success) -> Authenticated:
        return Authenticated(
            principal=success.principal,
            mechanism=self._mechanism,
            session_ms=self._sasl.session_ms(self._mechanism, success),
        )

    @property
    def _invalid_credentials(self) -> str:
        kind = "re-authentication" if self._again else "authentication"
        return (
            f"Authentication failed during {kind} due to invalid credentials with SASL mechanism "
            f"{self._mechanism}"
        )

    def _why(self, refusal: Rejection) -> str:
        cause = printable(shortened(refusal.cause))
        return f"its authentication by {self._mechanism} failed: {cause}"

    def _reply(self, request: Request, answer: object, **outcome: Any) -> SaslReply:
        return SaslReply(parts=self._protocol.build_response(request, answer), **outcome)


def _apis_of(context: RequestContext) -> LateTable[Api[Any, Any]]:
    """Return the APIs that a client may use before it has authenticated."""
    own = {each.key: each for each in (SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE)}
    rows = [row for row in context.apis.rows if row.key in own]
    return LateTable(rows, lambda row: own[row.key])
