"""The three clients over TLS, and the sentence that a person reads when it does not work."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from odradek import client
from odradek.broker.testing import RunningBroker, run_broker
from odradek.client import aio, blocking
from odradek.client.errors import Disconnected, Refused
from tests.certificates import DAY, Authority
from tests.client.three_clients import CLIENTS
from tests.secured import Secured, TlsBroker, run_secured

VALUES = [b"%d" % number * 1_000 for number in range(2_000)]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with run_secured(tmp_path_factory.mktemp("certificates")) as found:
        yield found


@pytest.fixture(scope="module")
def plain() -> Iterator[RunningBroker]:
    with run_broker() as found:
        yield found


def options(secured: Secured) -> dict[str, Any]:
    return {
        "security_protocol": "SSL",
        "ssl_ca_location": secured.authority.file,
        "ssl_certificate_location": secured.alice.certificate_file,
        "ssl_key_location": secured.alice.key_file,
    }


@pytest.mark.parametrize("name", CLIENTS)
def test_each_client_writes_and_reads_in_transactions(secured: Secured, name: str) -> None:
    assert CLIENTS[name](secured.address, name, VALUES, options(secured)) == VALUES


def test_certificates_may_be_pkcs12_and_pem_texts(secured: Secured) -> None:
    alice = secured.alice
    store: dict[str, Any] = {
        "security_protocol": "SSL",
        "ssl_ca_location": secured.authority.pem,
        "ssl_certificate_location": alice.pkcs12_file("secret"),
        "ssl_key_password": "secret",
    }
    texts: dict[str, Any] = {
        "security_protocol": "SSL",
        "ssl_ca_location": secured.authority.pem,
        "ssl_certificate_location": alice.certificate_pem,
        "ssl_key_location": alice.encrypted_key_pem("secret"),
        "ssl_key_password": "secret",
    }
    for given in (store, texts):
        with blocking.Admin(secured.address, **given) as admin:
            assert admin.describe_cluster().brokers


def refusal(address: str, **given: Any) -> str:
    """What a client says that cannot reach a broker."""
    with (
        blocking.Admin(address, first_connect_ms=5_000, **given) as admin,
        pytest.raises((Refused, Disconnected)) as refused,
    ):
        admin.describe_cluster()
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_certificate_that_is_not_trusted_is_named(secured: Secured) -> None:
    said = refusal(secured.address, security_protocol="SSL")
    assert said.startswith(f"the certificate of {secured.address} is not trusted (")
    assert "set ssl.truststore.location (ssl_ca_location) to the authority" in said


def test_a_host_that_is_not_in_the_certificate_is_named(secured: Secured) -> None:
    authority = secured.authority
    with run_broker(
        config={"ssl.keystore.location": authority.signed("far", hosts=["far.example"]).both_file},
        kind=TlsBroker,
    ) as far:
        given: dict[str, Any] = {"security_protocol": "SSL", "ssl_ca_location": authority.file}
        said = refusal(far.address, **given)
        assert said == (
            f"the certificate of {far.address} is not for the host '127.0.0.1': connect by a name "
            "that it has, or set ssl.endpoint.identification.algorithm= (ssl_check_hostname=False)"
        )
        with blocking.Admin(far.address, ssl_check_hostname=False, **given) as admin:
            assert admin.describe_cluster().brokers


def test_an_expired_certificate_is_named(secured: Secured) -> None:
    old = secured.authority.signed("old", begins=-3 * DAY, ends=-DAY)
    with run_broker(config={"ssl.keystore.location": old.both_file}, kind=TlsBroker) as broker:
        said = refusal(
            broker.address, security_protocol="SSL", ssl_ca_location=secured.authority.file
        )
        assert said == f"the certificate of {broker.address} has expired"


def test_a_client_that_needs_a_certificate_is_told(secured: Secured) -> None:
    said = refusal(secured.address, security_protocol="SSL", ssl_ca_location=secured.authority.file)
    assert said.startswith(f"{secured.address} asks for a certificate of the client")
    assert "set ssl.keystore.location (ssl_certificate_location)" in said


def test_a_certificate_of_another_authority_is_refused(
    secured: Secured, tmp_path_factory: pytest.TempPathFactory
) -> None:
    strange = Authority(tmp_path_factory.mktemp("strange"), "strange").signed("alice")
    said = refusal(
        secured.address,
        security_protocol="SSL",
        ssl_ca_location=secured.authority.file,
        ssl_certificate_location=strange.both_file,
    )
    assert said.startswith(f"{secured.address} does not trust the certificate of this client")


def test_a_client_without_tls_on_a_port_with_it_is_told(secured: Secured) -> None:
    said = refusal(secured.address)
    assert said == (
        f"{secured.address} is not a Kafka broker, but a TLS server: set security.protocol=SSL or "
        "SASL_SSL (security_protocol), or take a plain listener"
    )


def test_a_client_with_tls_on_a_port_without_it_is_told(
    secured: Secured, plain: RunningBroker
) -> None:
    said = refusal(plain.address, security_protocol="SSL", ssl_ca_location=secured.authority.file)
    assert said.startswith(f"{plain.address} has closed the connection in the TLS handshake; see")
    assert "closed: it begins a TLS handshake, and this port has no TLS" in plain.log


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"security_protocol": "TLS"}, "security_protocol is one of 'PLAINTEXT', 'SSL'"),
        ({"ssl_ca_location": "ca.crt"}, 'ssl_ca_location belongs to security_protocol="SSL"'),
        ({"security_protocol": "SSL", "ssl_ca_location": "/no/such"}, "/no/such cannot be read"),
        (
            {"security_protocol": "SSL", "ssl_key_location": "/no/such"},
            "ssl_key_location is the key of ssl_certificate_location: set both",
        ),
    ],
)
def test_a_wrong_option_is_refused_when_the_client_is_made(
    given: dict[str, Any], sentence: str
) -> None:
    for kind in (client.Admin, blocking.Admin, aio.Admin):
        with pytest.raises(ValueError, match=re.escape(sentence)):
            kind("localhost:9092", **given)


def test_a_password_is_in_no_representation(secured: Secured) -> None:
    from odradek.client.config import ClientConfig

    config = ClientConfig(
        security_protocol="SSL",
        ssl_certificate_location=secured.alice.pkcs12_file("secret word"),
        ssl_key_password="secret word",
    )
    assert "secret word" not in repr(config)
