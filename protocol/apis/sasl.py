"""Authentication of a connection by SASL.

SaslHandshake (key 17), versions 0-1, never flexible: it chooses the mechanism. After version 0 the
tokens follow as bare frames, without a header; after version 1 they are in SaslAuthenticate.
SaslAuthenticate (key 36), versions 0-2, flexible from 2: one token of the mechanism and the answer
to it. From 1 on the answer says how long the session lasts (KIP-368); 0 is for ever.
"""

from typing import Final

from odradek.protocol.api import Api
from odradek.protocol.schema import LATEST, array, blob, int16, int64, message, string


@message
class SaslHandshakeRequest:
    mechanism: str = string()


@message
class SaslHandshakeResponse:
    error_code: int = int16()
    mechanisms: tuple[str, ...] = array("string")


@message
class SaslAuthenticateRequest:
    auth_bytes: bytes = blob(is_secret=True)


@message
class SaslAuthenticateResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    auth_bytes: bytes = blob()
    session_lifetime_ms: int = int64(default=0, since=1)


SASL_HANDSHAKE: Final = Api(
    key=17,
    name="SaslHandshake",
    min_version=0,
    max_version=1,
    flexible_from=LATEST,
    request=SaslHandshakeRequest,
    response=SaslHandshakeResponse,
)
SASL_AUTHENTICATE: Final = Api(
    key=36,
    name="SaslAuthenticate",
    min_version=0,
    max_version=2,
    flexible_from=2,
    request=SaslAuthenticateRequest,
    response=SaslAuthenticateResponse,
)
