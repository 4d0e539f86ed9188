"""Tokens: which are taken, and for what reason each other one is refused."""

import json
from contextlib import suppress
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from odradek.broker.oauth.signing_keys import UnknownSigningKey, parse_keys
from odradek.broker.oauth.tokens import InvalidToken, TokenRules, Verified, verify
from tests.broker.oauth.signing import (
    AUDIENCE,
    ISSUER,
    NOW_S,
    TokenServer,
    by_hand,
    elliptic,
    encoded,
    rsa,
    rsa_key,
)
from tests.drawing import given, st

RULES = TokenRules(audiences=("other", AUDIENCE), issuer=ISSUER)
SERVER = TokenServer()
KEYS = parse_keys(SERVER.jwks())
CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": NOW_S, "exp": NOW_S + 300}


def check(token: str, rules: TokenRules = RULES, *, now_s: float = NOW_S) -> Verified:
    return verify(token, KEYS, rules, now_ms=int(now_s * 1000))


def reason(token: str, rules: TokenRules = RULES, *, now_s: float = NOW_S) -> str:
    with pytest.raises(InvalidToken) as caught:
        check(token, rules, now_s=now_s)
    said = str(caught.value)
    assert token not in said
    return said


def test_a_valid_token_has_its_name_and_its_end() -> None:
    found = check(SERVER.token())
    assert found == Verified(name="alice", ends_ms=(NOW_S + 300) * 1000)


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        *((name, rsa("k", 1)) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
        ("ES256", elliptic("k", "P-256")),
        ("ES384", elliptic("k", "P-384")),
        ("ES512", elliptic("k", "P-521")),
    ],
)
def test_each_asymmetric_algorithm_is_verified(algorithm: str, key: Any) -> None:
    server = TokenServer([key])
    token = server.token(header={"alg": algorithm, "kid": "k"})
    keys = parse_keys(server.jwks())
    assert verify(token, keys, RULES, now_ms=NOW_S * 1000).name == "alice"
    head, payload, signature = token.split(".")
    other = "A" if signature[5] != "A" else "B"
    changed = f"{head}.{payload}.{signature[:5]}{other}{signature[6:]}"
    with pytest.raises(InvalidToken, match="signature"):
        verify(changed, keys, RULES, now_ms=NOW_S * 1000)


def test_a_token_that_nobody_signed_is_refused() -> None:
    for none in ("none", "None", "NONE"):
        assert "algorithm" in reason(by_hand({"alg": none, "kid": "first"}, CLAIMS))


def test_a_public_key_is_no_secret_of_hmac() -> None:
    """The trick that needs a broker which believes the algorithm that a token names."""
    public = rsa_key().public_key()
    forms = (
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        SERVER.jwks(),
    )
    for secret in forms:
        token = by_hand({"alg": "HS256", "kid": "first"}, CLAIMS, secret)
        assert "algorithm is 'HS256'" in reason(token)


def test_a_secret_in_the_jwks_verifies_nothing() -> None:
    secret = {"kty": "oct", "kid": "s", "k": encoded(b"secret" * 6)}
    keys = parse_keys(SERVER.jwks(secret))
    assert keys.left_out == 1
    token = by_hand({"alg": "HS256", "kid": "s"}, CLAIMS, b"secret" * 6)
    with pytest.raises(InvalidToken, match="algorithm"):
        verify(token, keys, RULES, now_ms=NOW_S * 1000)


def test_a_key_that_the_token_brings_is_not_used() -> None:
    own = rsa("first", 2)
    header = {
        "alg": "RS256",
        "kid": "first",
        "jwk": own.as_dict(private=False),
        "jku": "https://attacker.test/jwks",
        "x5u": "https://attacker.test/chain",
    }
    assert "signature" in reason(SERVER.token(key=own, header=header))


def test_another_key_under_a_known_kid_is_refused() -> None:
    assert "signature" in reason(SERVER.token(key=rsa("first", 2)))


def test_an_unknown_kid_may_be_of_newer_keys() -> None:
    with pytest.raises(UnknownSigningKey, match="kid 'second'"):
        check(SERVER.token(key=rsa("second")))


def test_a_token_without_kid_is_checked_if_one_key_fits() -> None:
    token = SERVER.token(header={"alg": "RS256"})
    assert check(token).name == "alice"
    two = TokenServer([rsa("first"), rsa("second", 2)])
    with pytest.raises(UnknownSigningKey, match="no kid, and 2 keys"):
        verify(token, parse_keys(two.jwks()), RULES, now_ms=NOW_S * 1000)


def test_a_key_for_one_algorithm_verifies_no_other() -> None:
    keys = parse_keys(
        json.dumps({"keys": [{**rsa("k").as_dict(private=False), "alg": "RS512"}]}).encode()
    )
    with pytest.raises(UnknownSigningKey, match="no key of RS256"):
        verify(SERVER.token(key=rsa("k")), keys, RULES, now_ms=NOW_S * 1000)


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"exp": NOW_S - 31}, "expired"),
        ({"exp": "soon"}, "expired"),
        ({"exp": True}, "expired"),
        ({"iat": NOW_S + 31}, "in the future"),
        ({"iat": "now"}, "iat"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"nbf": "now"}, "not valid yet"),
        ({"iss": "https://attacker.test"}, "another issuer"),
        ({"iss": f"{ISSUER}/"}, "another issuer"),
        ({"iss": [ISSUER]}, "another issuer"),
        ({"aud": "hotels"}, "another audience"),
        ({"aud": ["hotels", "cars"]}, "another audience"),
        ({"aud": []}, "another audience"),
        ({"aud": {AUDIENCE: 1}}, "another audience"),
        ({"aud": [AUDIENCE, 5]}, "another audience"),
        ({"aud": f"{AUDIENCE},hotels"}, "another audience"),
        ({"sub": ""}, "sub"),
        ({"sub": "  "}, "sub"),
        ({"sub": " alice"}, "sub"),
        ({"sub": 5}, "sub"),
        ({"sub": ["alice"]}, "sub"),
        ({"sub": "a" * 1_025}, "sub"),
        ({"scope": 5}, "scope"),
        ({"scope": [""]}, "scope"),
        ({"scope": {"a": 1}}, "scope"),
    ],
)
def test_a_claim_that_is_wrong_is_named(claims: dict[str, Any], said: str) -> None:
    assert said in reason(SERVER.token(**claims))


def test_a_name_of_half_a_character_is_refused() -> None:
    """No answer and no line could have it."""
    from joserfc import jws

    header = {"alg": "RS256", "kid": "first"}
    said = json.dumps({**CLAIMS, "sub": "a\ud800"}).encode()
    token = jws.serialize_compact(header, said, SERVER.keys[0], algorithms=["RS256"])
    assert "half a character" in reason(token)


def test_a_kid_of_half_a_character_can_be_logged() -> None:
    with pytest.raises(UnknownSigningKey) as caught:
        check(by_hand({"alg": "RS256", "kid": "\ud800\n"}, CLAIMS))
    assert str(caught.value).encode() == rb"no key of RS256 has the kid '\ud800\n'"


@pytest.mark.parametrize("claim", ["exp", "iat", "iss", "aud"])
def test_a_claim_that_is_missing_is_named(claim: str) -> None:
    assert reason(SERVER.token(without=[claim])) == f"it lacks {claim}"


def test_a_token_without_a_name_is_refused() -> None:
    assert reason(SERVER.token(without=["sub"])) == "its sub is no name"


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW_S - 29},
        {"iat": NOW_S + 30},
        {"nbf": NOW_S + 30},
        {"aud": ["hotels", AUDIENCE]},
        {"aud": "other"},
        {"scope": "read write"},
        {"scope": ["read", "write"]},
        {"scope": []},
        {"exp": NOW_S + 60.5},
        {"exp": 10**300},
        {"exp": 1e300},
        {"sub": "a" * 1_024},
    ],
)
def test_these_are_valid(claims: dict[str, Any]) -> None:
    assert check(SERVER.token(**claims)).ends_ms > NOW_S * 1000


def test_the_clocks_may_differ_by_the_skew_and_no_more() -> None:
    strict = TokenRules(audiences=(AUDIENCE,), issuer=ISSUER, skew_seconds=0)
    assert check(SERVER.token(exp=NOW_S + 1), strict).ends_ms == (NOW_S + 1) * 1000
    assert "expired" in reason(SERVER.token(exp=NOW_S), strict)
    assert check(SERVER.token(exp=NOW_S)).ends_ms > NOW_S * 1000


def test_another_claim_may_have_the_name() -> None:
    rules = TokenRules(
        audiences=(AUDIENCE,), issuer=ISSUER, subject_claim="email", scope_claim="scp"
    )
    assert check(SERVER.token(email="a@b", scope=5, without=["sub"]), rules).name == "a@b"
    assert reason(SERVER.token(), rules) == "its email is no name"
    assert "scp" in reason(SERVER.token(email="a@b", scp=5), rules)


@pytest.mark.parametrize(
    "header",
    [
        [],
        "alg",
        ["alg"],
        {},
        {"alg": None},
        {"alg": ["RS256"]},
        {"alg": {}},
        {"alg": "RS256", "kid": 5},
        {"alg": "RS256", "kid": "first", "crit": ["b64"], "b64": False},
        {"alg": "RS256", "kid": "first", "crit": []},
    ],
)
def test_a_header_of_any_other_form_is_refused(header: object) -> None:
    assert reason(by_hand(header, CLAIMS, b"x"))


def test_a_header_or_a_claim_of_a_thousand_levels_is_refused() -> None:
    deep = encoded(b"[" * 5_000)
    payload = encoded(json.dumps(CLAIMS).encode())
    assert "header" in reason(f"{deep}.{payload}.AA")
    head, *_ = SERVER.token().split(".")
    assert "signature" in reason(f"{head}.{deep}.AA")
    assert "longer than" in reason(f"{encoded(b' ' * 9_000)}.{payload}.AA")


def test_a_signed_text_that_is_no_object_is_refused() -> None:
    from joserfc import jws

    for said in (b"5", b"[]", b"", b"[" * 5_000, b"\xff"):
        header = {"alg": "RS256", "kid": "first"}
        token = jws.serialize_compact(header, said, SERVER.keys[0], algorithms=["RS256"])
        assert reason(token)


@given(st.text(alphabet=st.characters(max_codepoint=0x2000), max_size=60))
def test_no_text_leads_to_another_error(text: str) -> None:
    head, payload, signature = SERVER.token().split(".")
    for token in (
        text,
        f"{text}.{payload}.{signature}",
        f"{head}.{text}.{signature}",
        f"{head}.{payload}.{text}",
        f"{encoded(text.encode())}.{payload}.{signature}",
        f"{encoded(json.dumps({'alg': 'RS256', 'kid': text}).encode())}.{payload}.{signature}",
    ):
        with suppress(InvalidToken, UnknownSigningKey):
            assert check(token).name == "alice"
