"""The first message of OAUTHBEARER: what is read of it, and what is refused."""

from contextlib import suppress

import pytest

from odradek.broker.oauth.first_message import Malformed, parse_first_message
from tests.drawing import given, st


def test_a_message_has_its_token_and_no_authorization_id() -> None:
    found = parse_first_message(b"n,,\x01auth=Bearer a.b-c_d\x01\x01")
    assert (found.token, found.authorization_id) == ("a.b-c_d", "")


def test_the_token_is_not_in_what_a_log_would_show() -> None:
    assert "secret" not in repr(parse_first_message(b"n,,\x01auth=Bearer secret\x01\x01"))


@pytest.mark.parametrize("word", ["bearer", "BEARER", "Bearer "])
def test_the_scheme_is_read_in_any_case_and_with_blanks(word: str) -> None:
    assert parse_first_message(f"n,,\x01auth={word} t\x01\x01".encode()).token == "t"


def test_an_authorization_id_is_unescaped() -> None:
    message = "n,a=é=2C=3D2C,\x01auth=Bearer t\x01\x01".encode()
    assert parse_first_message(message).authorization_id == "é,=2C"


def test_extensions_are_ignored() -> None:
    message = b"n,,\x01logicalCluster=lkc-1\x01auth=Bearer t\x01pool=a b\x01\x01"
    assert parse_first_message(message).token == "t"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01",
        b"n,,\x01\x01",
        b"n,,\x01\x01\x01",
        b"n,,\x01auth=Bearer t",
        b"n,,\x01auth=Bearer t\x01",
        b"n,,\x01auth=Bearer t\x01\x01\x01",
        b"n,,\x01auth=Bearer t\x01\x01more",
        b"n,,\x01auth=Bearer t\x01more\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer t=\x01\x01",
        b"n,,\x01auth=Basic dTpw\x01\x01",
        b"n,,\x01auth=\x01\x01",
        b"n,,\x01other=Bearer t\x01\x01",
        b"n,,\x01Auth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer t\x01auth=Bearer u\x01\x01",
        b"n,,\x01auth=Bearer t\x01=v\x01\x01",
        b"n,,\x01auth=Bearer t\x01k9=v\x01\x01",
        b"n,,\x01auth=Bearer t\x01k=\x00\x01\x01",
        b"n,,\x01auth=Bearer t\x01k=\xc3\xa9\x01\x01",
        b"n,,auth=Bearer t\x01\x01",
        b"n,\x01auth=Bearer t\x01\x01",
        b"n\x01auth=Bearer t\x01\x01",
        b"y,,\x01auth=Bearer t\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer t\x01\x01",
        b"n,a=,\x01auth=Bearer t\x01\x01",
        b"n,a=a=b,\x01auth=Bearer t\x01\x01",
        b"n,a=a,b,\x01auth=Bearer t\x01\x01",
        b"n,a=\x00,\x01auth=Bearer t\x01\x01",
        b"n,b=alice,\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_any_other_form_is_refused_without_a_byte_of_it(message: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        parse_first_message(message)
    assert "tls-unique" not in str(caught.value)


@given(st.binary(max_size=200))
def test_no_bytes_lead_to_another_error(message: bytes) -> None:
    for each in (message, b"n,," + message, b"n,,\x01auth=Bearer " + message):
        with suppress(Malformed):
            assert parse_first_message(each).token
