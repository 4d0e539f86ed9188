"""A broker process with TLS: bad configuration, new certificates at run time, large requests."""

import os
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from odradek.client.blocking import Admin
from odradek.client.errors import Refused
from odradek.protocol.apis.metadata import METADATA, MetadataRequest
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsRequest
from odradek.protocol.errors import ErrorCode
from tests.broker.api.producing import until as asked_until
from tests.broker.environment.test_tls_connection import client_hello
from tests.broker.raw import RawClient
from tests.broker.test_hangup import Service
from tests.certificates import DAY, Authority
from tests.secured import Secured, TlsBroker, run_secured

VERSION = 0


def until(is_it: Callable[[], bool]) -> None:
    asked_until(is_it, bool)


class TlsClient(RawClient):
    """A `RawClient` over TLS."""

    def __init__(self, secured: Secured) -> None:
        super().__init__(secured.broker)
        context = ssl.create_default_context(cafile=secured.authority.file)
        self.socket: socket.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    @property
    def serial_number(self) -> int:
        """That of the certificate which the broker has shown."""
        assert isinstance(self.socket, ssl.SSLSocket)
        found: Any = self.socket.getpeercert()
        return int(found["serialNumber"], 16)


class TlsService(TlsBroker):
    """A broker with TLS and without a terminal."""

    command = Service.command


@contextmanager
def service(directory: Path) -> Iterator[Secured]:
    """A broker whose certificates may change."""
    authority = Authority(directory)
    keystore = authority.signed("broker").both_file
    with run_broker(config={"ssl.keystore.location": keystore}, kind=TlsService) as broker:
        yield Secured(
            broker=broker,
            authority=authority,
            alice=authority.signed("alice"),
            keystore=keystore,
        )


def refusal(*settings: str) -> str:
    """What a broker says that does not start."""
    words = [word for setting in settings for word in ("--set", setting)]
    ran = subprocess.run(
        [*RunningBroker.command, "--ephemeral", "--listen", "SSL://127.0.0.1:0", *words],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 1
    return ran.stderr.strip()


@pytest.mark.slow
def test_bad_configuration_is_one_sentence_at_the_start(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    keystore = f"ssl.keystore.location={authority.signed('broker').both_file}"
    assert refusal("ssl.keystore.location=/no/such") == (
        "Error: /no/such cannot be read: No such file or directory."
    )
    assert refusal().startswith("Error: Listener SSL has TLS and no certificate: set")
    assert refusal(keystore, "ssl.client.auth=required").startswith(
        "Error: ssl.client.auth is required, and no authority"
    )
    assert refusal(keystore, "listener.name.other.ssl.client.auth=none") == (
        "Error: listener.name.other.ssl.client.auth: there is no listener OTHER, but SSL."
    )
    assert "listener.name.ssl.ssl.nonsense is not a setting of the broker" in refusal(
        keystore, "listener.name.ssl.ssl.nonsense=1"
    )
    assert refusal(keystore, "etcd.endpoints=http://127.0.0.1:1") == (
        "Error: Brokers cannot use listener SSL among each other: ssl.truststore.location does not "
        "name the authority that signs the certificates of brokers."
    )


@pytest.mark.slow
def test_a_file_names_the_line_of_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=SSL://127.0.0.1:0\n\nssl.keystore.location=/no/such\n")
    command = [*RunningBroker.command, "--ephemeral", "--config", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    said = f"Error: {file}, line 3: /no/such cannot be read: No such file or directory.\n"
    assert (ran.returncode, ran.stderr) == (1, said)


@pytest.mark.slow
def test_the_largest_legal_request_is_served(tmp_path: Path) -> None:
    with run_secured(tmp_path, client_auth="none") as secured:
        size_bytes = 100 * 1024 * 1024  # socket.request.max.bytes
        with TlsClient(secured) as client:
            one = 0
            for _ in range(2):  # the second time the frame has exactly the largest size
                request = ProduceRequest(
                    acks=1,
                    timeout_ms=30_000,
                    topic_data=(
                        TopicProduceData(
                            name="t",
                            partition_data=(
                                PartitionProduceData(index=0, records=bytes(max(one, 1))),
                            ),
                        ),
                    ),
                )
                _, parts = client._connection.request(PRODUCE, 3, request)
                frame = b"".join(parts)
                one = size_bytes - (len(frame) - 4) + 1
                client.send(frame)
                answer = client.response()
                partition = answer.responses[0].partition_responses[0]
                assert partition.error_code != ErrorCode.NONE
            assert len(frame) == 4 + size_bytes
            assert client.ask(API_VERSIONS, VERSION, ApiVersionsRequest()).api_keys


@pytest.mark.slow
def test_metadata_has_the_address_of_the_listener_that_was_asked(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    keystore = authority.signed("broker").both_file
    command = [
        *(*RunningBroker.command, "--ephemeral", "--set", f"ssl.keystore.location={keystore}"),
        *("--set", "listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"),
        *("--set", "advertised.listeners=PLAINTEXT://plain.example:1,SSL://secure.example:2"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            plain, secure = (int(it.split(",")[0]) for it in said.split("127.0.0.1:")[1:])
            for port, host in ((plain, "plain.example"), (secure, "secure.example")):
                broker = RunningBroker(tmp_path, {}, {}, port)
                secured = Secured(
                    broker=broker,
                    authority=authority,
                    alice=authority.signed("alice"),
                    keystore=keystore,
                )
                with RawClient(broker) if port == plain else TlsClient(secured) as client:
                    found = client.ask(METADATA, 4, MetadataRequest(topics=()))
                    assert [each.host for each in found.brokers] == [host]
        finally:
            process.kill()


@pytest.mark.slow
def test_the_start_warns_of_a_certificate_that_ends_soon(tmp_path: Path) -> None:
    keystore = Authority(tmp_path).signed("broker", ends=3 * DAY).both_file
    with run_broker(config={"ssl.keystore.location": keystore}, kind=TlsService) as broker:
        until(lambda: "broker.pem expires at" in broker.log)


def test_sighup_takes_a_new_certificate_and_open_connections_go_on(tmp_path: Path) -> None:
    with service(tmp_path) as secured, TlsClient(secured) as before:
        renewed = secured.authority.signed("renewed", ends=60 * DAY)
        Path(secured.keystore).write_text(renewed.key_pem + renewed.certificate_pem)
        os.kill(secured.broker.process.pid, signal.SIGHUP)
        until(lambda: "listener SSL has a new certificate" in secured.broker.log)
        with TlsClient(secured) as after:
            assert after.serial_number == renewed.certificate.serial_number
            assert after.serial_number != before.serial_number
        assert before.ask(API_VERSIONS, VERSION, ApiVersionsRequest()).api_keys


@pytest.mark.slow
@pytest.mark.parametrize("swaps", [30, pytest.param(100, marks=pytest.mark.minutes)])
def test_no_request_fails_while_certificates_change_and_half_of_them_are_broken(
    tmp_path: Path, swaps: int
) -> None:
    with service(tmp_path) as secured:
        is_over = threading.Event()
        served: list[int] = []
        failures: list[BaseException] = []

        def ask_anew() -> None:
            try:
                while not is_over.is_set():
                    with TlsClient(secured) as client:
                        client.ask(API_VERSIONS, VERSION, ApiVersionsRequest())
                        served.append(client.serial_number)
            except BaseException as error:
                failures.append(error)

        def ask_on() -> None:
            try:
                with TlsClient(secured) as client:
                    while not is_over.is_set():
                        client.ask(API_VERSIONS, VERSION, ApiVersionsRequest())
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=it) for it in (ask_anew, ask_anew, ask_on)]
        for thread in threads:
            thread.start()
        try:
            good = {_swap(secured, number) for number in range(swaps)} - {None}
            newest = _swap(secured, swaps)
            until(lambda: bool(failures) or served[-1:] == [newest])
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
        assert not failures, failures
        assert len(good) == swaps // 2
        assert len(set(served)) > 2


def _swap(secured: Secured, number: int) -> int | None:
    """Let the broker read another certificate, and wait until it has said what it thinks of it.

    Each second one is broken. Return the serial number of a good one.
    """
    new = secured.authority.signed("new")
    text = new.key_pem + new.certificate_pem
    is_broken = number % 2 == 1
    broken = (text[: len(text) // 2], "", secured.alice.key_pem + new.certificate_pem)
    Path(secured.keystore).write_text(broken[number % 3] if is_broken else text)
    before = _count(secured)
    os.kill(secured.broker.process.pid, signal.SIGHUP)
    until(lambda: _count(secured) > before)
    return None if is_broken else new.certificate.serial_number


def _count(secured: Secured) -> int:
    log = secured.broker.log
    return log.count("has a new certificate") + log.count("keeps its certificate of before")


@pytest.mark.slow
def test_a_certificate_changes_by_a_request_which_a_broken_one_refuses(tmp_path: Path) -> None:
    with service(tmp_path) as secured:
        renewed, other = (secured.authority.signed(name) for name in ("renewed", "other"))
        name = "listener.name.ssl.ssl.keystore.location"
        given: dict[str, Any] = {
            "security_protocol": "SSL",
            "ssl_ca_location": secured.authority.file,
        }
        with Admin(secured.address, **given) as admin:
            admin.alter_broker_configs(1, {name: renewed.both_file})
            with TlsClient(secured) as client:
                assert client.serial_number == renewed.certificate.serial_number
            for broken, sentence in (
                ({name: "/no/such"}, "Nothing was changed: /no/such cannot be read"),
                ({"ssl.keystore.location": other.both_file}, "only per-listener using the"),
                ({"listener.name.ssl.ssl.client.auth": "none"}, "Cannot update these configs dyn"),
                ({"listener.name.ssl.ssl.nonsense": "x"}, "Unknown config name"),
            ):
                with pytest.raises(Refused) as refused:
                    admin.alter_broker_configs(1, broken)
                assert sentence in str(refused.value)
            with pytest.raises(Refused, match="Each broker has files of its own"):
                admin.alter_cluster_configs({name: other.both_file})
            # The same file again: its content has changed.
            Path(renewed.both_file).write_text(other.key_pem + other.certificate_pem)
            admin.alter_broker_configs(1, {name: str(tmp_path / "renewed.pem")})
            with TlsClient(secured) as client:
                assert client.serial_number == other.certificate.serial_number
            found = admin.describe_broker_configs(1)[1]
            assert found[name].value == str(tmp_path / "renewed.pem")
            assert not found[name].is_read_only
        secured.broker.restart()
        with TlsClient(secured) as client:
            assert client.serial_number == other.certificate.serial_number


@pytest.mark.slow
def test_a_password_is_in_no_answer_and_in_no_log(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    config = {
        "ssl.keystore.location": authority.signed("broker").pkcs12_file("secret word"),
        "ssl.keystore.password": "secret word",
        "listener.name.ssl.ssl.key.password": "secret word",
    }
    with run_broker(config=config, kind=TlsBroker) as broker:
        given: dict[str, Any] = {"security_protocol": "SSL", "ssl_ca_location": authority.file}
        with Admin(broker.address, **given) as admin:
            found = admin.describe_broker_configs(1)[1]
            for name in ("ssl.keystore.password", "listener.name.ssl.ssl.key.password"):
                assert found[name].value is None
                assert found[name].is_sensitive
            name = "listener.name.ssl.ssl.keystore.password"
            with pytest.raises(Refused) as refused:
                admin.alter_broker_configs(1, {name: "another secret word"})
        assert "its password is another one" in str(refused.value)
        assert "secret word" not in f"{refused.value} {broker.log} {found}"


@pytest.mark.slow
def test_silent_clients_and_clients_that_trickle_keep_no_honest_one_out(tmp_path: Path) -> None:
    """None of them costs a thread, or a place among the connections of clients."""
    limits = subprocess.run(
        ["bash", "-c", "ulimit -n"], capture_output=True, text=True, check=True
    ).stdout.strip()
    count = 400 if limits == "unlimited" else min(400, int(limits) // 4)
    hello = client_hello()
    with service(tmp_path) as secured:
        address = (secured.broker.host, secured.broker.port)
        silent = [socket.create_connection(address, 60) for _ in range(count)]
        try:
            for number, sock in enumerate(silent[::4]):
                sock.sendall(hello[: 1 + number % (len(hello) - 1)])
            for _ in range(10):
                with TlsClient(secured) as client:
                    assert client.ask(API_VERSIONS, VERSION, ApiVersionsRequest()).api_keys
        finally:
            for sock in silent:
                sock.close()
