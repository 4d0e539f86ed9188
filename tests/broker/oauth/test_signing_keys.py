"""The JWKS: which keys are taken from it, and which are left out."""

import json
from typing import Any

import pytest

from odradek.broker.oauth.signing_keys import KEYS_MAX, UnknownSigningKey, WrongKeys, parse_keys
from tests.broker.oauth.signing import TokenServer, elliptic, encoded, rsa
from tests.drawing import given, st

GOOD = rsa("good").as_dict(private=False)


def left_out(member: Any) -> bool:
    return parse_keys(json.dumps({"keys": [GOOD, member]}).encode()).left_out == 1


@pytest.mark.parametrize(
    "member",
    [
        None,
        "key",
        [],
        {},
        {"kty": "oct", "k": encoded(b"secret"), "kid": "s"},
        {"kty": "OKP", "crv": "Ed25519", "x": encoded(b"x" * 32), "kid": "o"},
        {"kty": ["RSA"], "n": GOOD["n"], "e": GOOD["e"]},
        {**GOOD, "use": "enc"},
        {**GOOD, "key_ops": ["encrypt"]},
        {**GOOD, "key_ops": "verify"},
        {**GOOD, "alg": "HS256"},
        {**GOOD, "alg": "none"},
        {**GOOD, "alg": "RSA-OAEP"},
        {**GOOD, "kid": 5},
        {**GOOD, "n": 5},
        {**GOOD, "n": encoded(b"\xff" * 128)},
        {**GOOD, "n": "é"},
        {**GOOD, "e": None},
        {"kty": "RSA", "kid": "without"},
        {**elliptic("e").as_dict(private=False), "crv": "P-384"},
        {**elliptic("e").as_dict(private=False), "crv": "secp256k1"},
        {**elliptic("e").as_dict(private=False), "x": encoded(b"\x01" * 32)},
    ],
)
def test_a_key_that_verifies_no_token_is_left_out(member: Any) -> None:
    assert left_out(member)


def test_keys_of_signatures_are_taken() -> None:
    for kid, member in (
        ("a", {**GOOD, "kid": "a", "use": "sig", "key_ops": ["verify"], "alg": "PS512"}),
        ("b", {**elliptic("b", "P-521").as_dict(private=False), "x5c": ["nonsense"], "x5u": 5}),
    ):
        keys = parse_keys(json.dumps({"keys": [member]}).encode())
        assert keys.find(kid, "PS512" if kid == "a" else "ES512").kid == kid


def test_the_private_half_of_a_key_is_not_kept() -> None:
    member = rsa("private").as_dict(private=True)
    key = parse_keys(json.dumps({"keys": [member]}).encode()).find("private", "RS256")
    assert not key.is_private


def test_two_keys_of_one_kid_are_told_apart_by_their_kind_only() -> None:
    both = TokenServer([rsa("same"), elliptic("same")])
    assert parse_keys(both.jwks()).find("same", "ES256").key_type == "EC"
    alike = TokenServer([rsa("same"), rsa("same", 2)])
    with pytest.raises(UnknownSigningKey, match="more than one key of RS256 has the kid 'same'"):
        parse_keys(alike.jwks()).find("same", "RS256")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON"),
        (b"<html>", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no JWKS"),
        (b"{}", "no JWKS"),
        (b'{"keys": {}}', "no JWKS"),
        (b'{"keys": []}', "no key that verifies"),
        (b'{"keys": [{"kty": "oct", "k": "AA"}]}', "no key that verifies"),
        (json.dumps({"keys": [GOOD] * (KEYS_MAX + 1)}).encode(), "101 keys"),
    ],
)
def test_what_is_no_jwks_is_refused_with_a_reason(content: bytes, said: str) -> None:
    with pytest.raises(WrongKeys, match=said):
        parse_keys(content)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
MEMBERS = ("kty", "kid", "alg", "use", "key_ops", "n", "e", "crv", "x", "y", "d")


@given(st.dictionaries(st.sampled_from(MEMBERS), JSON), st.sampled_from(["RSA", "EC"]))
def test_members_of_any_value_are_left_out_or_taken(changes: dict[str, Any], kind: str) -> None:
    member = GOOD if kind == "RSA" else elliptic("e").as_dict(private=False)
    keys = parse_keys(json.dumps({"keys": [GOOD, {**member, **changes}]}).encode())
    assert len(keys) + keys.left_out == 2
