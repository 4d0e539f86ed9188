"""--command-config: a file of Kafka's client settings for each command."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.client.cli.client_properties import client_properties
from tests.secured import Secured, run_secured


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with run_secured(tmp_path_factory.mktemp("certificates")) as found:
        yield found


def odradek(*words: str, given: str | None = None) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "odradek.broker", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, input=given)


def test_the_settings_of_a_file_are_options() -> None:
    text = """
        bootstrap.servers=b1:9093
        security.protocol=ssl
        ssl.truststore.type=PEM
        ssl.truststore.location=ca.crt
        ssl.keystore.location=/etc/alice.p12
        ssl.keystore.password=secret
        ssl.endpoint.identification.algorithm=
        acks=all
        """
    found = client_properties(text, "f")
    assert found.bootstrap == "b1:9093"
    assert found.options == {
        "security_protocol": "SSL",
        "ssl_ca_location": "ca.crt",
        "ssl_certificate_location": "/etc/alice.p12",
        "ssl_key_password": "secret",
        "ssl_check_hostname": False,
    }


def test_without_a_protocol_a_client_is_plain_as_in_java() -> None:
    found = client_properties("ssl.truststore.location=ca.crt\nclient.id=x", "f")
    assert found.options == {"client_id": "x", "security_protocol": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("security.protocol=TLS", "security.protocol is PLAINTEXT or SSL, and 'TLS' was given"),
        ("security.protocol=SASL_SSL", "is PLAINTEXT or SSL, and 'SASL_SSL' was given"),
        ("sasl.mechanism=PLAIN", "sasl.mechanism is not known here; the client has TLS, and no"),
        ("ssl.truststore.locations=x", "ssl.truststore.locations is not known here"),
        ("ssl.endpoint.identification.algorithm=x", "is https or empty, and 'x' was given"),
    ],
)
def test_a_mistake_about_security_is_one_sentence_with_the_line(line: str, sentence: str) -> None:
    with pytest.raises(ValueError, match="f, line 2: ") as refused:
        client_properties(f"# a comment\n{line}\n", "f")
    assert sentence in str(refused.value)


@pytest.mark.slow
def test_commands_reach_a_broker_with_tls(secured: Secured, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"bootstrap.servers={secured.address}\nsecurity.protocol=SSL\n"
        f"ssl.truststore.location={secured.authority.file}\n"
        f"ssl.keystore.location={secured.alice.both_file}\n"
    )
    given = ("--command-config", str(file))
    made = odradek("topic", "create", "flights", *given)
    assert made.returncode == 0, made.stderr
    sent = odradek("produce", "flights", *given, given="LH 400\n")
    assert sent.returncode == 0, sent.stderr
    read = odradek("consume", "flights", "-n", "1", *given)
    assert "LH 400" in read.stdout, read.stderr
    well = odradek("ping", "--bootstrap", secured.address, *given)
    assert "answers, in" in well.stdout, well.stderr


@pytest.mark.slow
def test_commands_say_in_a_sentence_why_they_cannot_connect(
    secured: Secured, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\n")
    given = ("--bootstrap", secured.address, "--command-config", str(file))
    for command in (("topic", "list"), ("ping",)):
        said = odradek(*command, *given)
        assert said.returncode == 1
        assert f"certificate of {secured.address} is not trusted (" in said.stderr
        assert len(said.stderr.splitlines()) == 1
    file.write_text("security.protocol=SSL\nssl.truststore.location=/no/such\n")
    for command in (("topic", "list"), ("ping",)):
        said = odradek(*command, *given)
        assert said.returncode == 1
        assert said.stderr == "Error: /no/such cannot be read: No such file or directory.\n"
