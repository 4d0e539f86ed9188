"""SCRAM against the examples of RFC 5802 and RFC 7677, and texts that are none."""

import base64
from typing import Final

import pytest

from odradek.protocol import scram
from odradek.protocol.errors import ProtocolError

FIRST: Final = "n=user,r=rOprNGfwEbeRWgbNEkqO"
NONCE: Final = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHALLENGE: Final = f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
WITHOUT_PROOF: Final = f"c=biws,r={NONCE}"


def test_proof_and_signature_are_those_of_the_example_of_rfc_7677() -> None:
    given = scram.attributes(CHALLENGE)
    salted = scram.salted_password(
        "sha256", "pencil", base64.b64decode(given["s"]), int(given["i"])
    )
    exchanged = f"{FIRST},{CHALLENGE},{WITHOUT_PROOF}"
    key = scram.client_key("sha256", salted)
    signed = scram.signature("sha256", scram.stored_key("sha256", key), exchanged)
    proof = scram.xor(key, signed)
    assert base64.b64encode(proof) == b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    answer = scram.signature("sha256", scram.server_key("sha256", salted), exchanged)
    assert base64.b64encode(answer) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert scram.stored_key("sha256", scram.xor(proof, signed)) == scram.stored_key("sha256", key)


@pytest.mark.parametrize("name", ["alice", "a,b", "a=b", "=2C", "=3D,", "é=,=", ""])
def test_a_name_comes_back_as_it_was(name: str) -> None:
    escaped = scram.escaped_name(name)
    assert "," not in escaped
    assert scram.unescaped_name(escaped) == name


@pytest.mark.parametrize("text", ["a=b", "=", "=2", "=2c", "a\0b"])
def test_a_name_with_another_escape_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        scram.unescaped_name(text)


@pytest.mark.parametrize("text", ["", "r", "r=1,", "r=1,r=2", "nonce=1", "=1"])
def test_a_message_that_is_no_list_of_letters_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        scram.attributes(text)


def test_a_value_may_have_equals_signs_and_an_unknown_letter() -> None:
    assert scram.attributes("r=a=b==,x=,i=1") == {"r": "a=b==", "x": "", "i": "1"}
