"""SaslHandshake, key 17, versions 0-1; SaslAuthenticate, key 36, versions 0-2: of known clients.

Behaviour: a client authenticates before its requests are served, and again when its session ends
(`broker/server/sasl_dialog.py`). A request that comes at another time, or on a listener without
SASL, is answered ILLEGAL_SASL_STATE, and the connection goes on.

Versions: after version 0 of SaslHandshake tokens are bare frames. SaslAuthenticate 1 has the
lifetime of the session; 2 is flexible.

Differs from Kafka:

- A user that does not exist costs as many messages and as much time as a wrong password. SCRAM
  answers a false salt, which is the same each time, and refuses the second message. Kafka refuses
  the first.
- The refusal of an authentication is answered before the connection ends. A tenth of a second is
  between the two, so that every client reads the reason. Kafka sends both at once.
- SCRAM's messages are checked as RFC 5802 has it. The second one repeats the binding of the first,
  an extension that must be known is refused, the proof is for all extensions, and one of another
  size is answered as a wrong password. Kafka takes any binding, ignores extensions that must be
  known, and closes the connection without an answer if the proof is too short.
- A session is renewed by the mechanism that it began with. Another one ends the connection at
  SaslHandshake, which Kafka answers first.
- A client that has not authenticated may send little. Its requests have up to 64 KiB, where Kafka
  allows 512 KiB; TLS and SASL together have 10 s; an API other than ApiVersions, SaslHandshake and
  SaslAuthenticate closes the connection without an answer, between SaslHandshake and
  SaslAuthenticate, too, where Kafka parses the request to answer it.
- `sasl.enabled.mechanisms` is SCRAM-SHA-256 and SCRAM-SHA-512, and GSSAPI in Kafka, which is not
  built here. Neither are delegation tokens.
- OAUTHBEARER needs an audience and an issuer. Keys come over https, without redirects, or from a
  file. A token is signed by one of nine asymmetric algorithms; one that was issued in the future is
  refused. After a refused token no second one is taken on the connection. Kafka needs neither
  audience nor issuer.
- `sasl.jaas.config` names modules that are known, and nothing is loaded. The options of PLAIN that
  give users are read.
"""

from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import NOTHING
from odradek.broker.api.served_api import ServedApi
from odradek.protocol.apis.sasl import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from odradek.protocol.errors import ErrorCode


async def sasl_handshake(
    _context: RequestContext, _request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=())


async def sasl_authenticate(
    _context: RequestContext, _request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )


SERVED: Final = (
    ServedApi(SASL_HANDSHAKE, sasl_handshake, NOTHING),
    ServedApi(SASL_AUTHENTICATE, sasl_authenticate, NOTHING),
)
