"""docs/security.md: its commands make certificates, and its samples run with them."""

import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from odradek.broker.testing import RunningBroker
from odradek.client.blocking import Consumer, TopicPartition
from tests.broker.oauth.signing import TokenServer
from tests.programs import running
from tests.token_server import run_token_server

PAGE: Final = (Path(__file__).parents[1] / "docs" / "security.md").read_text()
ADDRESS: Final = "localhost:9092"
SERVED: Final = re.compile(r"serves 127\.0\.0\.1:(\d+),")
RUN_SECONDS: Final = 120.0

pytestmark = pytest.mark.slow


def blocks(section: str, language: str) -> list[str]:
    """The blocks of a language in a section of the page."""
    _, _, rest = PAGE.partition(f"\n## {section}\n")
    assert rest, section
    text, _, _ = rest.partition("\n## ")
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)


TLS: Final = "TLS with an authority of your own"
MUTUAL: Final = "Mutual TLS"
SCRAM: Final = "One machine with SCRAM"
OAUTH: Final = "OAuth with a token server"
TOKENS: Final = "localhost:8443"


def make(directory: Path, commands: str) -> str:
    """Run commands of the page. Return what they print."""
    ran = subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=directory,
        timeout=RUN_SECONDS,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def odradek_as_function() -> str:
    """Return what makes `odradek` in a shell the program of this environment."""
    return f'odradek() {{ "{sys.executable}" -m odradek.broker "$@"; }}\n'


@contextmanager
def broker(directory: Path, properties: str) -> Iterator[int]:
    """Run a broker with the settings that the page shows, on a free port. Return the port."""
    assert ":9092" in properties
    (directory / "server.properties").write_text(properties.replace(":9092", ":0"))
    command = [*RunningBroker.command, "--config", "server.properties"]
    log = (directory / "log").open("w")
    with log, running(command, cwd=directory, stdout=subprocess.PIPE, stderr=log) as process:
        assert process.stdout is not None
        said = SERVED.search(process.stdout.readline())
        assert said is not None, (directory / "log").read_text()
        yield int(said[1])


def run_sample(directory: Path, port: int, sample: str) -> None:
    assert ADDRESS in sample
    words = [sys.executable, "-c", sample.replace(ADDRESS, f"localhost:{port}")]
    subprocess.run(words, cwd=directory, check=True, timeout=RUN_SECONDS)


def test_the_recipe_for_tls_works_as_it_is_printed(tmp_path: Path) -> None:
    certificates, serve, look = blocks(TLS, "sh")
    assert serve.split() == ["odradek", "serve", "--config", "server.properties"]
    make(tmp_path, certificates)
    properties, client = blocks(TLS, "properties")
    with broker(tmp_path, properties) as port:
        for sample in blocks(TLS, "python"):
            run_sample(tmp_path, port, sample)
        assert ADDRESS in client
        (tmp_path / "client.properties").write_text(client.replace(ADDRESS, f"localhost:{port}"))
        words = [sys.executable, "-m", "odradek.broker", *look.split()[1:]]
        ran = subprocess.run(
            words, cwd=tmp_path, capture_output=True, text=True, timeout=RUN_SECONDS
        )
        assert "flights" in ran.stdout, ran.stderr


def test_the_recipe_for_mutual_tls_works_as_it_is_printed(tmp_path: Path) -> None:
    make(tmp_path, blocks(TLS, "sh")[0])
    make(tmp_path, blocks(MUTUAL, "sh")[0])
    properties, rules = blocks(MUTUAL, "properties")
    with broker(tmp_path, properties + rules) as port:
        for sample in blocks(MUTUAL, "python"):
            run_sample(tmp_path, port, sample)
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        with (
            socket.create_connection(("localhost", port), RUN_SECONDS) as sock,
            context.wrap_socket(sock, server_hostname="localhost") as without,
            pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"),
        ):
            without.recv(1)


def test_the_recipe_for_scram_works_as_it_is_printed(tmp_path: Path) -> None:
    command = odradek_as_function()
    passwords, first, serve, commands = blocks(SCRAM, "sh")
    assert serve.split() == ["odradek", "serve", "--config", "server.properties"]
    settings, admin = blocks(SCRAM, "properties")
    (sample,) = blocks(SCRAM, "python")
    (tmp_path / "server.properties").write_text(settings)
    make(tmp_path, passwords)
    make(tmp_path, command + first)
    with broker(tmp_path, settings) as port:
        (tmp_path / "admin.properties").write_text(admin.replace(ADDRESS, f"localhost:{port}"))
        make(tmp_path, command + commands)
        run_sample(tmp_path, port, sample)
        wrong = sample.replace('"alice.password"', '"admin.password"')
        assert wrong != sample
        with pytest.raises(subprocess.CalledProcessError):
            run_sample(tmp_path, port, wrong.replace("flush(30)", "flush(2)"))
        # librdkafka counts a record that was refused as flushed.
        with Consumer(
            f"localhost:{port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username="admin",
            sasl_password=(tmp_path / "admin.password").read_text().strip(),
        ) as consumer:
            places = [TopicPartition("flights", n) for n in consumer.partitions_for("flights")]
            assert sum(consumer.end_offsets(places).values()) == 1
    secret = (tmp_path / "alice.password").read_text().strip().encode()
    kept = [path for path in (tmp_path / "odradek-data").rglob("*") if path.is_file()]
    assert len(kept) > 1
    assert not any(secret in path.read_bytes() for path in kept)


def test_the_recipe_for_oauth_works_as_it_is_printed(tmp_path: Path) -> None:
    make(tmp_path, blocks(TLS, "sh")[0])
    (properties,) = blocks(OAUTH, "properties")
    (sample,) = blocks(OAUTH, "python")
    identity = str(tmp_path / "broker.pem"), str(tmp_path / "ca.crt")
    with run_token_server(tmp_path, TokenServer(), identity=identity) as server:
        place = f"localhost:{server.port}"
        server.tokens.issuer, server.tokens.audience = f"https://{place}", "flights"
        assert properties.count(TOKENS) == 2
        with broker(tmp_path, properties.replace(TOKENS, place)) as port:
            run_sample(tmp_path, port, sample.replace(TOKENS, place))
        assert "/token" in server.asked
        server.tokens.audience = "hotels"
        with (
            broker(tmp_path, properties.replace(TOKENS, place)) as port,
            pytest.raises(subprocess.CalledProcessError),
        ):
            run_sample(
                tmp_path, port, sample.replace(TOKENS, place).replace("flush(30)", "flush(5)")
            )
        assert "its token was refused: it is for another audience" in (tmp_path / "log").read_text()
