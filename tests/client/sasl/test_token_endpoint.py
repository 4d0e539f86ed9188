"""A token server that is asked by the grant client_credentials."""

from collections.abc import Iterator
from typing import Any

import pytest

from odradek.client import AuthenticationFailed, Disconnected, Refused
from odradek.client.config import ClientConfig
from odradek.client.sasl.token_endpoint import TokenEndpoint
from tests.token_server import RunningTokenServer, run_token_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTokenServer]:
    with run_token_server(tmp_path_factory.mktemp("tokens")) as found:
        yield found


def endpoint(server: RunningTokenServer, **changed: Any) -> TokenEndpoint:
    given: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": server.token_url,
        "sasl_oauthbearer_client_id": "alice",
        "sasl_oauthbearer_client_secret": "secret word",
        "sasl_oauthbearer_ca_location": server.authorities,
        "sasl_oauthbearer_extensions": {"logicalCluster": "x"},
    }
    found = ClientConfig(**{**given, **changed})._tokens()
    assert isinstance(found, TokenEndpoint)
    return found


def test_a_token_and_its_lifetime_come_from_the_server(server: RunningTokenServer) -> None:
    token = endpoint(server)()
    assert token.value.count(".") == 2
    assert (token.lifetime_s, token.extensions) == (300.0, {"logicalCluster": "x"})


def test_a_server_that_fails_may_answer_later(server: RunningTokenServer) -> None:
    server.answers.append((503, {}, b"<html>away</html>"))
    with pytest.raises(Disconnected) as refused:
        endpoint(server)()
    assert str(refused.value) == f"the token server {server.token_url} answered 503"


def test_a_server_that_is_not_there_may_come_later(server: RunningTokenServer) -> None:
    url = "https://localhost:1/token"
    with pytest.raises(Disconnected, match="no token from https://localhost:1/token"):
        endpoint(server, sasl_oauthbearer_token_endpoint_url=url)()


def test_a_server_whose_certificate_is_not_trusted_gets_no_secret(
    server: RunningTokenServer,
) -> None:
    asked = len(server.asked)
    with pytest.raises(Disconnected, match="certificate"):
        endpoint(server, sasl_oauthbearer_ca_location=None)()
    assert len(server.asked) == asked


def test_a_refusal_has_the_words_of_the_server_and_no_secret(server: RunningTokenServer) -> None:
    words = b'{"error": "invalid_client", "error_description": "unknown\\nclient"}'
    server.answers.append((401, {}, words))
    with pytest.raises(AuthenticationFailed) as refused:
        endpoint(server)()
    assert r"answered 401 (invalid_client: unknown\nclient): see sasl_" in str(refused.value)
    assert "secret word" not in str(refused.value)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"access_token": 5}', b"\xff", b"<html>"])
def test_an_answer_without_a_token_is_refused(server: RunningTokenServer, body: bytes) -> None:
    server.answers.append((200, {}, body))
    with pytest.raises(Refused, match="answered without a token"):
        endpoint(server)()
