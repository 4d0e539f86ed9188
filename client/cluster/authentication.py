"""SASL on the connections of a client: at their beginning, and again before a session ends.

After ApiVersions a connection chooses the mechanism (SaslHandshake), and exchanges the tokens of
that mechanism (SaslAuthenticate) until the broker has let it in or refused it.

A broker may limit the session (KIP-368). Before it ends, the client does the same within the
connection, while requests go on. What is posted meanwhile is held for some milliseconds. Requests
that were sent before are answered first, and if one of these waits for long, so does the handshake:
the broker counts a session as over for other requests only.
"""

import random
from typing import Final

import trio

from odradek.client.cluster.connection import BrokerConnection
from odradek.client.errors import (
    AuthenticationFailed,
    Disconnected,
    OdradekError,
    Retriable,
    code_of,
    error_for,
)
from odradek.client.journal import Journal
from odradek.client.sasl.credentials import Credentials
from odradek.client.sasl.exchanges import Exchange, UnexpectedAnswer
from odradek.protocol.apis.sasl import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.text import printable, shortened

RENEWED_FROM: Final = 0.8
RENEWED_UNTIL: Final = 0.9
"""The part of a session after which it is renewed is between them, so that not all come at once."""
NO_TOKEN_PAUSE_S: Final = 1.0
TOKENS_MAX: Final = 8
"""No mechanism has as many. A broker may not keep a client in an exchange."""
OF_TOKENS: Final = "OAUTHBEARER"


class Authenticator:
    """The authentication of the connections of one client."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        rng: random.Random,
        journal: Journal,
        request_timeout_ms: int,
        proof: str = "",
    ) -> None:
        """`proof` says to a person which name and password, or which token, was refused."""
        is_token = credentials.mechanism == OF_TOKENS
        self._proof = proof or f"{'the token' if is_token else 'name and password'} (sasl_*)"
        self._credentials = credentials
        self._rng = rng
        self._journal = journal
        self._timeout_ms = request_timeout_ms

    async def begin(self) -> Exchange:
        """Begin an authentication, before there is a connection: a token may take its time.

        Raises `OdradekError` if there is no token.
        """
        return await self._credentials.exchange()

    async def authenticate(self, connection: BrokerConnection, exchange: Exchange) -> None:
        """Authenticate a new connection, and renew its session as long as it is open.

        Raises `AuthenticationFailed` if trying again does not help, and what `request` raises.
        """
        session_ms = await self._perform(connection, exchange)
        if session_ms > 0:
            connection.in_background(self._renew, connection, session_ms)

    async def _renew(self, connection: BrokerConnection, session_ms: int) -> None:
        while session_ms > 0:
            until = trio.current_time() + session_ms / 1000
            part = self._rng.uniform(RENEWED_FROM, RENEWED_UNTIL)
            await trio.sleep(session_ms / 1000 * part)
            try:
                exchange = await self._next_exchange(connection, until)
                with connection.hold():
                    try:
                        session_ms = await self._perform(connection, exchange)
                    except OdradekError as error:
                        # The next connection of the client finds out whether it is let in at all.
                        connection.close(_not_renewed(connection, error))
                        return
            except OdradekError as error:
                connection.close(_not_renewed(connection, error))
                return

    async def _next_exchange(self, connection: BrokerConnection, until: float) -> Exchange:
        """Begin an authentication, which may need a new token; try until the session has ended."""
        while True:
            try:
                return await self._credentials.exchange()
            except OdradekError as error:
                if trio.current_time() + NO_TOKEN_PAUSE_S >= until:
                    raise
                self._journal.note_no_token(connection.peer, error)
            await trio.sleep(NO_TOKEN_PAUSE_S)

    async def _perform(self, connection: BrokerConnection, exchange: Exchange) -> int:
        """Authenticate, and return the milliseconds for which the session lasts; 0 for ever.

        Raises `AuthenticationFailed`, and what `request` raises.
        """
        try:
            await self._choose_mechanism(connection)
            return await self._exchange_tokens(connection, exchange)
        except UnexpectedAnswer as error:
            raise AuthenticationFailed(f"{self._doing(connection)}: {error}") from None
        except Disconnected as error:
            raise Disconnected(
                f"{self._doing(connection)}: the broker closed the connection; see its log"
            ) from error

    async def _choose_mechanism(self, connection: BrokerConnection) -> None:
        mechanism = self._credentials.mechanism
        if SASL_HANDSHAKE.key not in connection.versions:
            raise _without_sasl(connection)
        answer = await connection.request(
            SASL_HANDSHAKE,
            1,
            SaslHandshakeRequest(mechanism=mechanism),
            timeout_ms=self._timeout_ms + connection.longest_wait_ms,
            is_held=False,
        )
        code = code_of(answer.error_code)
        if code is ErrorCode.ILLEGAL_SASL_STATE:
            raise _without_sasl(connection)
        if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise AuthenticationFailed(
                f"the listener {connection.peer} has no SASL mechanism {mechanism}: set "
                f"sasl.mechanism (sasl_mechanism) to {_choice(answer.mechanisms)}",
                code=code,
            )
        if code is not ErrorCode.NONE:
            raise error_for(code, self._doing(connection))

    async def _exchange_tokens(self, connection: BrokerConnection, exchange: Exchange) -> int:
        version = connection.version_of(SASL_AUTHENTICATE)
        token: bytes | None = exchange.first()
        for _ in range(TOKENS_MAX):
            assert token is not None
            answer = await connection.request(
                SASL_AUTHENTICATE,
                version,
                SaslAuthenticateRequest(auth_bytes=token),
                timeout_ms=self._timeout_ms + connection.longest_wait_ms,
                is_held=False,
            )
            code = code_of(answer.error_code)
            if code is not ErrorCode.NONE:
                raise self._refusal(connection, code, answer.error_message)
            token = await exchange.respond(answer.auth_bytes)
            if token is None:
                return answer.session_lifetime_ms
        raise UnexpectedAnswer("the exchange has no end")

    def _refusal(
        self, connection: BrokerConnection, code: ErrorCode, said: str | None
    ) -> OdradekError:
        error = error_for(code, self._doing(connection), printable(said or ""))
        if isinstance(error, Retriable):
            return error
        return AuthenticationFailed(f"{error}; see {self._proof}", code=code)

    def _doing(self, connection: BrokerConnection) -> str:
        return f"authenticating at {connection.peer} by {self._credentials.mechanism}"


async def check_without_sasl(connection: BrokerConnection) -> None:
    """Raise `AuthenticationFailed` if a listener has SASL, for a client without.

    A broker closes a connection with another first request than a handshake, without a word. But to
    a handshake with an unknown mechanism it answers which it has.
    """
    if SASL_HANDSHAKE.key not in connection.versions:
        return
    answer = await connection.request(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=""))
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise AuthenticationFailed(
            f"the listener {connection.peer} asks for SASL: set security.protocol "
            "(security_protocol) to SASL_SSL, or without TLS to SASL_PLAINTEXT, and sasl.mechanism "
            f"(sasl_mechanism) to {_choice(answer.mechanisms)}"
        )


def _without_sasl(connection: BrokerConnection) -> AuthenticationFailed:
    return AuthenticationFailed(
        f"the listener {connection.peer} has no SASL: take another port, or set "
        "security.protocol=PLAINTEXT or SSL (security_protocol)"
    )


def _not_renewed(connection: BrokerConnection, error: OdradekError) -> Disconnected:
    return Disconnected(f"the session at {connection.peer} was not renewed: {error}")


def _choice(mechanisms: tuple[str, ...]) -> str:
    return printable(shortened(" or ".join(mechanisms))) or "one that it has"
