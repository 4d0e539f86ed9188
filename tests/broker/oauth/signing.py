"""A token server's part of OAUTHBEARER: keys, the JWKS of them, and tokens signed by them."""

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

NOW_S: Final = 1_800_000_000
ISSUER: Final = "https://tokens.test"
AUDIENCE: Final = "flights"


@cache
def rsa_key(number: int = 0, bits: int = 2048) -> Any:
    """Return an RSA key of the `cryptography` library, one for each number."""
    from cryptography.hazmat.primitives.asymmetric import rsa

    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@dataclass
class TokenServer:
    """Signs tokens with its keys, and publishes them."""

    keys: list[RSAKey | ECKey] = field(default_factory=lambda: [rsa("first")])
    issuer: str = ISSUER
    audience: str = AUDIENCE

    def jwks(self, *more: dict[str, Any]) -> bytes:
        """Return the JWKS, with further members of it."""
        return json.dumps(
            {"keys": [*(key.as_dict(private=False) for key in self.keys), *more]}
        ).encode()

    def token(
        self,
        *,
        now_s: float = NOW_S,
        key: RSAKey | ECKey | None = None,
        header: dict[str, Any] | None = None,
        without: Sequence[str] = (),
        **claims: Any,
    ) -> str:
        """Return a token that is valid, but for `claims`, and for the claims it is `without`."""
        key = self.keys[0] if key is None else key
        said = {
            "iss": self.issuer,
            "aud": self.audience,
            "sub": "alice",
            "iat": int(now_s),
            "exp": int(now_s) + 300,
            **claims,
        }
        algorithm = {"RSA": "RS256", "EC": "ES256"}[key.key_type]
        head = {"alg": algorithm, "kid": key.kid} if header is None else header
        for claim in without:
            del said[claim]
        return jwt.encode(head, said, key, algorithms=[str(head["alg"])])


def rsa(kid: str | None, number: int = 0) -> RSAKey:
    return RSAKey.import_key(rsa_key(number), {"kid": kid} if kid else None)


def elliptic(kid: str, curve: str = "P-256") -> ECKey:
    return ECKey.generate_key(curve, {"kid": kid})


def encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def by_hand(header: object, claims: object, secret: bytes = b"") -> str:
    """Return a token whose signature is an HMAC, or empty without a secret."""
    text = f"{encoded(json.dumps(header).encode())}.{encoded(json.dumps(claims).encode())}"
    mac = hmac.new(secret, text.encode(), hashlib.sha256).digest() if secret else b""
    return f"{text}.{encoded(mac)}"
