"""The tokens of OAUTHBEARER: where they come from, and how long one is used."""

from typing import Final

import trio

from odradek.client.errors import AuthenticationFailed, OdradekError
from odradek.client.types import OAuthToken, TokenFunction
from odradek.extras import ExtraMissing

USED_PART: Final = 0.75
"""The part of its lifetime for which a token is used again. Then the next one is fetched, so that a
session that is renewed after that gets a new one."""


class TokenSource:
    """The tokens of one client. One is shared by all connections while it is fresh."""

    def __init__(self, given: OAuthToken | TokenFunction) -> None:
        """Take tokens from a function, or the same one always."""
        self._given = given
        self._kept: OAuthToken | None = None
        self._fresh_until = 0.0
        self._one_at_a_time = trio.Lock()

    async def token(self) -> OAuthToken:
        """Return a token.

        Raises an `OdradekError` that the function raises, which may be `Retriable`, and
        `AuthenticationFailed` for another error of it.
        """
        if isinstance(self._given, OAuthToken):
            return self._given
        async with self._one_at_a_time:
            if self._kept is None or trio.current_time() >= self._fresh_until:
                began = trio.current_time()
                self._kept = await _fetch(self._given)
                self._fresh_until = began + USED_PART * (self._kept.lifetime_s or 0.0)
            return self._kept


async def _fetch(function: TokenFunction) -> OAuthToken:
    try:
        given = await trio.to_thread.run_sync(function, abandon_on_cancel=True)
        return given if isinstance(given, OAuthToken) else OAuthToken(value=given)
    except OdradekError:
        raise
    except ExtraMissing as error:
        raise AuthenticationFailed(f"no token for OAUTHBEARER: {error}") from error
    except Exception as error:
        raise AuthenticationFailed(
            f"no token for OAUTHBEARER: sasl_token has raised {type(error).__name__} ({error})"
        ) from error
