"""docs/security.md: the recipe for three brokers, as it is printed, with a real etcd."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.client.blocking import Admin, NewTopic, OdradekError, Producer
from tests.cluster.test_network import wait_until
from tests.peers.etcd_server import RealEtcd
from tests.peers.kafka import free_ports
from tests.test_security_page import MUTUAL, TLS, blocks, make

pytestmark = [pytest.mark.peers, pytest.mark.slow]

THREE: Final = "Three brokers"
PASSWORDS: Final = "Three brokers with passwords"
ETCD: Final = "http://127.0.0.1:2379"
COUNT: Final = 3


def on_ports(serve: str, clients: list[int], peers: list[int]) -> str:
    """Return the page's command for these ports, and for the program of this environment."""
    assert "${id}9092" in serve
    assert "${id}9093" in serve
    found = serve.replace("${id}9092", "${clients[$id]}").replace("${id}9093", "${peers[$id]}")
    return "\n".join(
        [
            f"clients=(0 {' '.join(map(str, clients))})",
            f"peers=(0 {' '.join(map(str, peers))})",
            f'odradek() {{ exec {sys.executable} -m odradek.broker "$@"; }}',
            found,
            "wait",
        ]
    )


@contextmanager
def brokers(directory: Path, commands: str) -> Iterator[None]:
    """Run the brokers that commands start, while the block runs."""
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            ["bash", "-c", commands],
            cwd=directory,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_the_recipe_for_three_brokers_with_passwords_works_as_it_is_printed(
    real_etcd: RealEtcd, tmp_path: Path
) -> None:
    passwords, users, serve = blocks(PASSWORDS, "sh")
    (properties,) = blocks(PASSWORDS, "properties")
    assert ETCD in properties
    properties = properties.replace(ETCD, ",".join(real_etcd.endpoints))
    (tmp_path / "brokers.properties").write_text(f"{properties}etcd.key.prefix=/passwords\n")
    make(tmp_path, passwords)
    make(tmp_path, f'odradek() {{ {sys.executable} -m odradek.broker "$@"; }}\n{users}')
    ports = free_ports(2 * COUNT)
    clients, peers = ports[:COUNT], ports[COUNT:]
    addresses = ",".join(f"localhost:{port}" for port in clients)

    def options(user: str) -> dict[str, Any]:
        return {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": user,
            "sasl_password": (tmp_path / f"{user}.password").read_text().strip(),
        }

    with brokers(tmp_path, on_ports(serve, clients, peers)):
        wait_until(lambda: are_there(addresses, options("alice")))
        with (
            Admin(addresses, **options("alice")) as admin,
            Producer(addresses, **options("alice")) as producer,
        ):
            admin.create_topics([NewTopic("flights", 3, COUNT)])
            for partition in range(3):
                producer.send("flights", b"LH 400", partition=partition).result()

            def are_in_sync() -> bool:
                (topic,) = admin.describe_topics("flights")
                return all(len(each.isr) == COUNT for each in topic.partitions)

            wait_until(are_in_sync)
        with (
            pytest.raises(OdradekError, match=r"(?i)authoriz"),
            Producer(addresses, **options("broker")) as nobody,
        ):
            nobody.send("flights", b"LH 401").result()
    log = (tmp_path / "log").read_text()
    assert "does not let this broker in" not in log
    assert not any(options(user)["sasl_password"] in log for user in ("alice", "broker"))


def are_there(addresses: str, options: dict[str, Any]) -> bool:
    """Return True if all brokers have started."""
    try:
        with Admin(addresses, **options) as admin:
            return len(admin.describe_cluster().brokers) == COUNT
    except OdradekError:
        return False


def test_the_recipe_for_three_brokers_works_as_it_is_printed(
    real_etcd: RealEtcd, tmp_path: Path
) -> None:
    for section, language, number in ((TLS, "sh", 0), (MUTUAL, "sh", 0), (THREE, "sh", 0)):
        make(tmp_path, blocks(section, language)[number])
    (properties,) = blocks(THREE, "properties")
    assert ETCD in properties
    properties = properties.replace(ETCD, ",".join(real_etcd.endpoints))
    (tmp_path / "brokers.properties").write_text(f"{properties}etcd.key.prefix=/page\n")
    ports = free_ports(2 * COUNT)
    clients, peers = ports[:COUNT], ports[COUNT:]
    addresses = ",".join(f"localhost:{port}" for port in clients)
    alice: dict[str, Any] = {
        "security_protocol": "SSL",
        "ssl_ca_location": str(tmp_path / "ca.crt"),
        "ssl_certificate_location": str(tmp_path / "alice.crt"),
        "ssl_key_location": str(tmp_path / "alice.key"),
    }
    with brokers(tmp_path, on_ports(blocks(THREE, "sh")[1], clients, peers)):
        wait_until(lambda: are_there(addresses, alice))
        with Admin(addresses, **alice) as admin:
            admin.create_topics([NewTopic("flights", 3, COUNT)])
            with Producer(addresses, **alice) as producer:
                producer.send("flights", b"LH 400").result()

            def are_in_sync() -> bool:
                (topic,) = admin.describe_topics("flights")
                return all(len(each.isr) == COUNT for each in topic.partitions)

            wait_until(are_in_sync)
            broker = {
                **alice,
                "ssl_certificate_location": str(tmp_path / "broker1.crt"),
                "ssl_key_location": str(tmp_path / "broker1.key"),
            }
            with (
                pytest.raises(OdradekError, match=r"(?i)authoriz"),
                Producer(addresses, **broker) as nobody,
            ):
                nobody.send("flights", b"LH 401").result()
    log = (tmp_path / "log").read_text()
    assert "for brokers closed" not in log
