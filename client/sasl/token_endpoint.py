"""Tokens from a token server, by a client's id and secret (the grant client_credentials of OAuth).

The server's certificate is checked as that of any https server. A secret is sent over http to this
machine only.
"""

import json
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

from odradek.client.errors import AuthenticationFailed, Disconnected, OdradekError, Refused
from odradek.client.types import OAuthToken
from odradek.extras import imports_of
from odradek.late import dataclass
from odradek.protocol.text import printable, shortened

TIMEOUT_S: Final = 10.0
ANSWER_MAX_BYTES: Final = 1024 * 1024
OK: Final = 200
LATER: Final = (408, 425, 429)
SERVER_ERROR: Final = 500
"""From this status on the server itself has failed, and may answer later. So for `LATER`."""
LOCAL: Final = ("localhost", "127.0.0.1", "::1")


def check_url(url: str) -> None:
    """Raise ValueError for a URL to which no secret may be sent."""
    parts = urlsplit(url)
    is_secret = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOCAL)
    if not is_secret or not parts.hostname or parts.username or parts.password:
        raise ValueError(
            "sasl_oauthbearer_token_endpoint_url is https://HOST/PATH (http only for this "
            f"machine), without a user, and {_shown(url)!r} was given"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEndpoint:
    """A token server, and who asks it. Calling it returns a token."""

    url: str
    client_id: str
    client_secret: str
    scope: str | None = None
    authorities: ssl.SSLContext | None = None
    extensions: Mapping[str, str]

    def __repr__(self) -> str:
        return f"<TokenEndpoint {_shown(self.url)}>"

    def __call__(self) -> OAuthToken:
        """Ask the server. Raises `Disconnected` if it may answer later, `AuthenticationFailed`."""
        with imports_of("oauth", "a token server (sasl_oauthbearer_token_endpoint_url)"):
            import httpx2

        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        # RFC 6749, 2.3.1: both are encoded as in a form first.
        user, secret = quote(self.client_id, safe=""), quote(self.client_secret, safe="")
        try:
            with httpx2.Client(
                verify=self.authorities or ssl.create_default_context(), timeout=TIMEOUT_S
            ) as client:
                answer = client.post(
                    self.url, data=form, auth=(user, secret), headers={"Accept": "application/json"}
                )
        except httpx2.HTTPError as error:
            raise Disconnected(
                f"no token from {_shown(self.url)} ({type(error).__name__}: {error})"
            ) from None
        if answer.status_code != OK:
            raise self._refusal(answer.status_code, answer.content)
        return self._token(answer.content)

    def _refusal(self, status: int, content: bytes) -> OdradekError:
        text = f"the token server {_shown(self.url)} answered {status}{_words(content)}"
        if status >= SERVER_ERROR or status in LATER:
            return Disconnected(text)
        return AuthenticationFailed(
            f"{text}: see sasl_oauthbearer_client_id, its secret and its scope"
        )

    def _token(self, content: bytes) -> OAuthToken:
        try:
            found: Any = json.loads(content[:ANSWER_MAX_BYTES])
            value, lifetime_s = found["access_token"], found.get("expires_in")
            return OAuthToken(
                value=value,
                lifetime_s=None if lifetime_s is None else float(lifetime_s),
                extensions=self.extensions,
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise Refused(
                f"the token server {_shown(self.url)} answered without a token (access_token)"
            ) from None


def _words(content: bytes) -> str:
    """Return the error of an answer in brackets; none if it has not the form of RFC 6749."""
    try:
        found: Any = json.loads(content[:ANSWER_MAX_BYTES])
        words = [found[name] for name in ("error", "error_description") if name in found]
        return f" ({printable(shortened(': '.join(map(str, words))))})" if words else ""
    except (ValueError, TypeError, RecursionError):
        return ""


def _shown(url: str) -> str:
    """Return a URL without what may be a secret in it."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path}"
