"""Checks of a token (JWT, RFC 7519): its signature, its time, whom it is for, and who it names.

The rules are Kafka's, and a few more: audience and issuer must be set, so that a token for another
service of the same token server is not taken; the algorithms are a list (`signing_keys.py`), so
that neither `none` nor HS256 with the public key as its secret is one; and a token that was issued
in the future is refused.

The reason of a refusal is for the log: the client gets `invalid_token` for each. It has no part of
the token but names of claims and the id of a key.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from odradek.broker.config.settings import shortened
from odradek.broker.oauth.signing_keys import ALGORITHMS, SigningKeys
from odradek.late import dataclass

HEADER_MAX_BYTES: Final = 8_192
PAYLOAD_MAX_BYTES: Final = 65_536
SIGNATURE_MAX_BYTES: Final = 4_096
NAME_MAX_CHARACTERS: Final = 1_024


class InvalidToken(Exception):
    """A token is refused: the end of a sentence that begins with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """The settings of a listener that tokens must agree with."""

    audiences: tuple[str, ...]
    """A token is for one of these."""
    issuer: str
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    skew_seconds: int = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The facts of a token that is valid."""

    name: str
    ends_ms: int
    """The end of its life, in milliseconds since 1970. It is in the future."""


def verify(token: str, keys: SigningKeys, rules: TokenRules, *, now_ms: int) -> Verified:
    """Check a token. Raises `InvalidToken`, and `UnknownSigningKey` if newer keys may help."""
    header = _header(token)
    claims = _claims(token, header, keys)
    _check_claims(claims, rules, now_ms // 1000)
    return Verified(
        name=_name(claims, rules.subject_claim), ends_ms=_ends_ms(claims["exp"], rules, now_ms)
    )


def _header(token: str) -> Mapping[str, Any]:
    """Return the header of a token, which nobody has signed yet."""
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidToken("it is no signed JWT of three parts")
    if len(parts[0]) > HEADER_MAX_BYTES:
        raise InvalidToken(f"its header is longer than {HEADER_MAX_BYTES} bytes")
    try:
        header = json.loads(base64.urlsafe_b64decode(f"{parts[0]}=="))
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise InvalidToken("its header is no JSON object")
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise InvalidToken(f"its algorithm is {shortened(repr(algorithm))}, which is not allowed")
    if not (kid is None or isinstance(kid, str)):
        raise InvalidToken("its kid is no text")
    if "crit" in header:
        raise InvalidToken("it has extensions that must be understood (crit)")
    return header


def _claims(token: str, header: Mapping[str, Any], keys: SigningKeys) -> dict[str, Any]:
    """Return what a token says, after a check of its signature."""
    from joserfc import jws
    from joserfc.errors import JoseError

    algorithm = header["alg"]
    key = keys.find(header.get("kid"), algorithm)
    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    registry.max_header_length = HEADER_MAX_BYTES
    registry.max_payload_length = PAYLOAD_MAX_BYTES
    registry.max_signature_length = SIGNATURE_MAX_BYTES
    try:
        signed = jws.deserialize_compact(token, key, registry=registry)
    except (JoseError, ValueError, RecursionError):
        raise InvalidToken("its signature does not fit") from None
    try:
        claims = json.loads(signed.payload or b"")
    except (ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict):
        raise InvalidToken("it says nothing: its payload is no JSON object")
    return claims


def _check_claims(claims: dict[str, Any], rules: TokenRules, now_s: int) -> None:
    from joserfc.errors import ClaimError, MissingClaimError
    from joserfc.jwt import JWTClaimsRegistry

    registry = JWTClaimsRegistry(
        now=now_s,
        leeway=rules.skew_seconds,
        exp={"essential": True},
        iat={"essential": True},
        iss={"essential": True, "value": rules.issuer},
        aud={"essential": True, "values": list(rules.audiences)},
    )
    try:
        registry.validate(claims)
    except MissingClaimError as error:
        raise InvalidToken(f"it lacks {error.claim}") from None
    except ClaimError as error:
        raise InvalidToken(_REASONS.get(error.claim, f"its {error.claim} is wrong")) from None
    scope = claims.get(rules.scope_claim)
    scopes = [] if scope is None else [scope] if isinstance(scope, str) else scope
    if not isinstance(scopes, list) or not all(isinstance(it, str) and it.strip() for it in scopes):
        raise InvalidToken(f"its {rules.scope_claim} is neither a text nor a list of texts")


_REASONS: Final = {
    "exp": "it has expired",
    "nbf": "it is not valid yet (nbf)",
    "iat": "it was issued in the future (iat)",
    "iss": "it is of another issuer than sasl.oauthbearer.expected.issuer",
    "aud": "it is for another audience than sasl.oauthbearer.expected.audience",
}


def _name(claims: Mapping[str, Any], claim: str) -> str:
    name = claims.get(claim)
    if not isinstance(name, str) or not name or name != name.strip():
        raise InvalidToken(f"its {claim} is no name")
    if any(0xD800 <= ord(each) <= 0xDFFF for each in name):
        raise InvalidToken(f"its {claim} has half a character, which UTF-8 cannot write")
    if len(name) > NAME_MAX_CHARACTERS:
        raise InvalidToken(f"its {claim} is longer than {NAME_MAX_CHARACTERS} characters")
    return name


def _ends_ms(exp: float, rules: TokenRules, now_ms: int) -> int:
    """Return the end of a token's life. It is not 0 or less for one that only the skew lets in."""
    ends_ms = int(min(exp, _LATEST_S) * 1000)
    return ends_ms if ends_ms > now_ms else ends_ms + (rules.skew_seconds + 1) * 1000


_LATEST_S: Final = 32_503_680_000
"""The year 3000: a number of a token may be any."""
