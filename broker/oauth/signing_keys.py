"""The public keys that tokens are signed for: a JWKS, the JSON that token servers publish.

Only keys that can verify a signature of `ALGORITHMS` are taken. A secret (`oct`) is none of them:
whoever could check a token with it could make one, too. Of each key only the public members are
read, so no link in it is followed and no certificate in it counts.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.config.settings import shortened
from odradek.late import dataclass

if TYPE_CHECKING:
    from joserfc.jwk import ECKey, RSAKey

CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
ALGORITHMS: Final = (*RSA, *CURVES)
"""The algorithms of tokens: asymmetric ones, listed. What a token names is not believed."""
KEYS_MAX: Final = 100
"""The keys of a JWKS; token servers have two to ten."""
RSA_BITS_MIN: Final = 2048

_COMMON: Final = ("kty", "kid", "alg", "use", "key_ops")
_MEMBERS: Final = {"RSA": (*_COMMON, "n", "e"), "EC": (*_COMMON, "crv", "x", "y")}


class WrongKeys(Exception):
    """A JWKS cannot be used: the end of a sentence that begins with its place."""


class UnknownSigningKey(Exception):
    """No key fits a token. The keys may be newer at the token server."""


@dataclass(frozen=True, slots=True)
class _SigningKey:
    kid: str | None
    algorithms: tuple[str, ...]
    key: "RSAKey | ECKey"


class SigningKeys:
    """The keys of one JWKS. Never changed."""

    def __init__(
        self, keys: Sequence[_SigningKey] = (), members: Sequence[object] = (), left_out: int = 0
    ) -> None:
        self._keys = tuple(keys)
        self._members = tuple(members)
        self.left_out = left_out
        """The number of keys that verify no token."""

    def __len__(self) -> int:
        return len(self._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SigningKeys) and self._members == other._members

    __hash__ = None  # type: ignore[assignment]

    def find(self, kid: str | None, algorithm: str) -> "RSAKey | ECKey":
        """Return the key of a token with this header. Raises `UnknownSigningKey`.

        A token without `kid` is checked only if one key fits: keys are not tried in turn.
        """
        found = [
            each.key
            for each in self._keys
            if algorithm in each.algorithms and (kid is None or each.kid == kid)
        ]
        if len(found) == 1:
            return found[0]
        if kid is not None:
            what = "no key" if not found else "more than one key"
            raise UnknownSigningKey(f"{what} of {algorithm} has the kid {shortened(repr(kid))}")
        raise UnknownSigningKey(f"it has no kid, and {len(found)} keys are of {algorithm}")


def parse_keys(content: bytes) -> SigningKeys:
    """Return the keys of a JWKS. Raises `WrongKeys`."""
    listed = _listed(content)
    keys = [key for each in listed if (key := _key(each)) is not None]
    if not keys:
        raise WrongKeys(
            "it has no key that verifies tokens (RSA of 2048 bits or more, or EC with P-256, P-384 "
            "or P-521)"
        )
    return SigningKeys(keys, listed, left_out=len(listed) - len(keys))


def _listed(content: bytes) -> list[Any]:
    try:
        jwks = json.loads(content)
    except (ValueError, RecursionError):
        raise WrongKeys("it is not JSON") from None
    listed = jwks.get("keys") if isinstance(jwks, dict) else None
    if not isinstance(listed, list):
        raise WrongKeys('it is no JWKS, {"keys": [...]}')
    if len(listed) > KEYS_MAX:
        raise WrongKeys(f"it has {len(listed)} keys, and {KEYS_MAX} are the most")
    return listed


def _key(member: object) -> _SigningKey | None:
    """Return a key of a JWKS; None for one that verifies no token."""
    kind = member.get("kty") if isinstance(member, Mapping) else None
    if not isinstance(member, Mapping) or not isinstance(kind, str) or kind not in _MEMBERS:
        return None
    public = {name: member[name] for name in _MEMBERS[kind] if name in member}
    kid, alg = public.get("kid"), public.get("alg")
    if not (kid is None or isinstance(kid, str)) or public.get("use", "sig") != "sig":
        return None
    algorithms = _algorithms(public)
    if alg is not None:
        algorithms = tuple(each for each in algorithms if each == alg)
    operations = public.get("key_ops", ["verify"])
    if not algorithms or not isinstance(operations, list) or "verify" not in operations:
        return None
    key = _imported(public)
    return None if key is None else _SigningKey(kid, algorithms, key)


def _algorithms(public: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the algorithms that a key of this kind is for."""
    if public["kty"] == "EC":
        return tuple(name for name, curve in CURVES.items() if curve == public.get("crv"))
    try:
        modulus = base64.urlsafe_b64decode(f"{public.get('n')}==")
    except ValueError:
        return ()
    is_long = int.from_bytes(modulus, "big").bit_length() >= RSA_BITS_MIN
    return RSA if is_long else ()


def _imported(public: dict[str, Any]) -> "RSAKey | ECKey | None":
    from joserfc.jwk import ECKey, RSAKey

    kind = RSAKey if public["kty"] == "RSA" else ECKey
    try:
        return kind.import_key(public)
    except Exception:  # members of any type and value: the library has many errors for them
        return None
