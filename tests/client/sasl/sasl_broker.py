"""A broker in memory whose listener has SASL, with the rules of a real one (KIP-152, KIP-368)."""

import base64
import json
from dataclasses import dataclass
from typing import Any, Final

import trio

from odradek.protocol import scram
from odradek.protocol.api import Api
from odradek.protocol.apis.metadata import METADATA
from odradek.protocol.apis.sasl import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from odradek.protocol.apis.versions import API_VERSIONS
from odradek.protocol.connection import Request, ServerProtocol
from odradek.protocol.errors import ErrorCode
from tests.client.fake_broker import SERVED, FakeBroker

NAME: Final = "ali=ce,"
PASSWORD: Final = "pa,ss=wörd"
TOKEN: Final = "a.token.of-alice"
SALT: Final = b"salt of alice"
WRONG: Final = "Authentication failed: Invalid username or password"


@dataclass
class Seat:
    """A connection, as the broker sees it."""

    mechanism: str | None = None
    """The mechanism that was chosen, while it authenticates."""
    is_let_in: bool = False
    ends_at: float = float("inf")
    first: str = ""
    challenge: str = ""
    refuses_token: bool = False


class SaslBroker(FakeBroker):
    """A broker that lets in only NAME with PASSWORD, or TOKEN."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self.mechanisms: tuple[str, ...] = (
            *("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        )
        self.session_ms = 0
        self.iterations = 4096
        self.password = PASSWORD
        self.tokens = [TOKEN]
        self.closes_at: Api[Any, Any] | None = None
        """The API that is answered by the end of the connection."""
        self.renews = True
        """Sessions may be renewed."""
        self.takes_s = 0.0
        """How long it takes to answer a request for metadata."""
        self.ends_nonce_with = "of the broker"
        self.signs_with = b""
        """What a wrong broker makes its signature of."""
        self.handshakes = 0
        self.seen: list[bytes] = []
        """The tokens that came."""
        self.broken: list[str] = []
        """What a client must not do."""
        self._seats: dict[Any, Seat] = {}

    def served(self) -> tuple[Api[Any, Any], ...]:
        return (*SERVED, SASL_HANDSHAKE, SASL_AUTHENTICATE)

    async def _serve_one(
        self, stream: trio.StapledStream[Any, Any], protocol: ServerProtocol, frame: memoryview
    ) -> bool:
        seat = self._seats.setdefault(stream, Seat())
        request = protocol.parse(frame)
        if request.api is self.closes_at:
            return False
        if request.api is SASL_HANDSHAKE:
            answer: Any = self._handshake(seat, request.body)
        elif request.api is SASL_AUTHENTICATE:
            if seat.mechanism is None:
                self.broken.append("a token before a handshake")
                return False
            answer = self._authenticate(seat, request.body)
        else:
            if not self._may(seat, request):
                return False
            if request.api is METADATA:
                await trio.sleep(self.takes_s)
            return await super()._serve_one(stream, protocol, frame)
        await stream.send_all(b"".join(protocol.build_response(request, answer)))
        return bool(answer.error_code == ErrorCode.NONE)

    def _may(self, seat: Seat, request: Request) -> bool:
        if request.api is API_VERSIONS and not seat.is_let_in:
            return True
        if seat.mechanism is not None:
            self.broken.append(f"{request.api.name} while it authenticates")
        elif not seat.is_let_in:
            self.broken.append(f"{request.api.name} before it has authenticated")
        elif trio.current_time() > seat.ends_at:
            self.broken.append(f"{request.api.name} after the end of its session")
        else:
            return True
        return False

    def _handshake(self, seat: Seat, body: SaslHandshakeRequest) -> SaslHandshakeResponse:
        self.handshakes += 1
        seat.mechanism = body.mechanism
        code = ErrorCode.NONE
        if body.mechanism not in self.mechanisms:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        seat.first = seat.challenge = ""
        return SaslHandshakeResponse(error_code=code, mechanisms=self.mechanisms)

    def _authenticate(self, seat: Seat, body: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        assert seat.mechanism is not None
        self.seen.append(body.auth_bytes)
        if seat.mechanism == "PLAIN":
            answer = self._plain(body.auth_bytes)
        elif seat.mechanism == "OAUTHBEARER":
            answer = self._oauth(seat, body.auth_bytes)
        elif not seat.first:
            return self._challenge(seat, body.auth_bytes.decode())
        else:
            answer = self._scram(seat, body.auth_bytes.decode())
        if answer is None or (seat.is_let_in and not self.renews):
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=WRONG, auth_bytes=b""
            )
        if not seat.refuses_token:
            seat.is_let_in, seat.mechanism = True, None
            if self.session_ms:
                seat.ends_at = trio.current_time() + self.session_ms / 1000
        return SaslAuthenticateResponse(
            error_code=0,
            error_message=None,
            auth_bytes=answer,
            session_lifetime_ms=self.session_ms,
        )

    def _plain(self, token: bytes) -> bytes | None:
        return b"" if token == f"\0{NAME}\0{self.password}".encode() else None

    def _oauth(self, seat: Seat, token: bytes) -> bytes | None:
        if seat.refuses_token:
            assert token == b"\x01"
            return None
        seat.refuses_token = token not in [
            f"n,,\x01auth=Bearer {each}\x01\x01".encode() for each in self.tokens
        ]
        return json.dumps({"status": "invalid_token"}).encode() if seat.refuses_token else b""

    def _challenge(self, seat: Seat, token: str) -> SaslAuthenticateResponse:
        assert token.startswith(scram.NO_BINDING)
        seat.first = token.removeprefix(scram.NO_BINDING)
        found = scram.attributes(seat.first)
        assert scram.unescaped_name(found["n"]) == NAME
        salt = base64.b64encode(SALT).decode()
        seat.challenge = f"r={found['r']}{self.ends_nonce_with},s={salt},i={self.iterations}"
        return SaslAuthenticateResponse(
            error_code=0, error_message=None, auth_bytes=seat.challenge.encode()
        )

    def _scram(self, seat: Seat, token: str) -> bytes | None:
        algorithm = scram.ALGORITHMS[seat.mechanism or ""]
        without_proof, _, proof = token.rpartition(",p=")
        exchanged = f"{seat.first},{seat.challenge},{without_proof}"
        salted = scram.salted_password(algorithm, self.password, SALT, self.iterations)
        key = scram.client_key(algorithm, salted)
        stored = scram.stored_key(algorithm, key)
        right = scram.xor(key, scram.signature(algorithm, stored, exchanged))
        if base64.b64decode(proof) != right:
            return None
        signing = self.signs_with or scram.server_key(algorithm, salted)
        signed = scram.signature(algorithm, signing, exchanged)
        return b"v=" + base64.b64encode(signed)
