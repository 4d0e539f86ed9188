"""The options of SASL: what contradicts, what is missing, and secrets that nobody sees."""

import re
from typing import Any, Final

import pytest

from odradek import client
from odradek.client import aio, blocking
from odradek.client.config import ClientConfig

USER: Final[dict[str, Any]] = {"sasl_username": "alice", "sasl_password": "secret word"}
SERVER: Final[dict[str, Any]] = {
    "sasl_oauthbearer_token_endpoint_url": "https://tokens/",
    "sasl_oauthbearer_client_id": "alice",
    "sasl_oauthbearer_client_secret": "secret word",
}


def sasl(mechanism: str | None, **given: Any) -> dict[str, Any]:
    return {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, **given}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (sasl(None, **USER), "sasl_mechanism is one of 'PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512'"),
        (sasl("GSSAPI"), "sasl_mechanism is one of 'PLAIN'"),
        (USER, 'sasl_username belongs to security_protocol="SASL_SSL" or "SASL_PLAINTEXT"'),
        ({**USER, "security_protocol": "SSL"}, "sasl_username belongs to security_protocol="),
        (sasl("PLAIN", sasl_username="a"), "PLAIN needs sasl_username and sasl_password: set both"),
        (sasl("PLAIN", sasl_username="", sasl_password=""), "at least one character"),
        (sasl("PLAIN", sasl_username="a\0b", sasl_password=""), "has a character NUL"),
        (
            sasl("SCRAM-SHA-256", **USER, sasl_token="t"),
            "sasl_token belongs to OAUTHBEARER, and sasl_mechanism is 'SCRAM-SHA-256'",
        ),
        (sasl("OAUTHBEARER", **USER), "sasl_username belongs to PLAIN and SCRAM, and"),
        (sasl("OAUTHBEARER"), "OAUTHBEARER needs either sasl_token or sasl_oauthbearer_token_end"),
        (sasl("OAUTHBEARER", **SERVER, sasl_token="t"), "OAUTHBEARER needs either sasl_token or"),
        (
            sasl("OAUTHBEARER", sasl_oauthbearer_scope="x"),
            "a token server needs sasl_oauthbearer_token_endpoint_url, sasl_oauthbearer_client_id,",
        ),
        (
            sasl("OAUTHBEARER", sasl_token=str, sasl_oauthbearer_extensions={"a": "b"}),
            "leave sasl_oauthbearer_extensions out",
        ),
        (
            sasl("OAUTHBEARER", **{**SERVER, "sasl_oauthbearer_token_endpoint_url": "http://h/"}),
            "sasl_oauthbearer_token_endpoint_url is https://HOST/PATH (http only for this machine)",
        ),
        ({"sasl_plain_password": "x"}, "did you mean 'sasl_password'?"),
        ({"ssl_ca_location": "x"}, 'belongs to security_protocol="SSL" or "SASL_SSL"'),
    ],
)
def test_a_wrong_option_is_refused_when_the_client_is_made(
    given: dict[str, Any], sentence: str
) -> None:
    for kind in (client.Admin, blocking.Admin, aio.Admin):
        with pytest.raises((ValueError, TypeError), match=re.escape(sentence)) as refused:
            kind("localhost:9092", **given)
        assert "secret word" not in str(refused.value)


@pytest.mark.parametrize("given", [sasl("PLAIN", **USER), sasl("OAUTHBEARER", **SERVER)])
def test_a_secret_is_in_no_representation(given: dict[str, Any]) -> None:
    config = ClientConfig(**given)
    assert "secret word" not in f"{config!r}{config.credentials()!r}"
    assert "secret" not in repr(client.Admin("localhost:9092", **given))


@pytest.mark.parametrize(
    "name", ["sasl_password", "sasl_oauthbearer_client_secret", "ssl_key_password"]
)
def test_a_secret_of_the_wrong_type_is_not_shown(name: str) -> None:
    with pytest.raises(ValueError, match="is a str or None, and a value of the type bytes was"):
        ClientConfig(**{name: b"secret word"})  # type: ignore[arg-type]
