"""The mechanism OAUTHBEARER (RFC 7628): the client sends a token, whose signature is checked.

A refused token is answered with a challenge, `{"status":"invalid_token"}`. The client answers it
with one byte 01, and is refused with the same text. So it is in the RFC, and clients wait for it.
The challenge has the reason for the log, since a client may end its connection instead.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from odradek.broker.config.settings import shortened
from odradek.broker.oauth.first_message import (
    ABANDONED,
    FirstMessage,
    Malformed,
    parse_first_message,
)
from odradek.broker.oauth.tokens import InvalidToken, Verified
from odradek.broker.security.mechanism import (
    Answer,
    Challenge,
    Rejection,
    ServerExchange,
    Success,
    Waiting,
)
from odradek.broker.security.principal import USER, Principal

INVALID_TOKEN: Final = '{"status":"invalid_token"}'

Verify = Callable[[str], Awaitable[Verified]]
"""Checks a token. Raises `InvalidToken`."""


class OAuthBearer:
    """OAUTHBEARER of one listener."""

    name: Final = "OAUTHBEARER"

    def __init__(self, verify: Verify) -> None:
        self._verify = verify

    def begin(self) -> ServerExchange:
        return _OAuthExchange(self._verify)


class _OAuthExchange:
    """The first message of a client, and what it says of a refusal."""

    def __init__(self, verify: Verify) -> None:
        self._verify = verify
        self._refused_because = ""

    def answer(self, token: bytes) -> Answer:
        if self._refused_because:
            # A second token is not taken, as a new connection costs a client more than a guess.
            words = INVALID_TOKEN if token == ABANDONED else None
            return Rejection(words=words, cause=self._refused_because)
        try:
            first = parse_first_message(token)
        except Malformed as error:
            return Rejection(cause=f"its message is not one of {OAuthBearer.name}: {error}")
        return Waiting(partial(self._check, first))

    async def _check(self, first: FirstMessage) -> Challenge | Success | Rejection:
        try:
            verified = await self._verify(first.token)
        except InvalidToken as error:
            self._refused_because = f"its token was refused: {error}"
            return Challenge(INVALID_TOKEN.encode(), refused=self._refused_because)
        # invariant authentication 5: A token is for the principal that it names, and for no other.
        # plant the name to act for is ignored in OAUTHBEARER
        if first.authorization_id not in ("", verified.name):
            return Rejection(
                words=(
                    "Authentication failed: Client requested an authorization id "
                    f"({shortened(first.authorization_id)}) that is different from the token's "
                    f"principal name ({shortened(verified.name)})"
                ),
                cause=f"{verified.name!r} would act for another user",
            )
        principal = Principal(USER, verified.name)
        return Success(principal=principal, expires_at_ms=verified.ends_ms)
