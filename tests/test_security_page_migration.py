"""docs/security.md: from open to closed, as it is printed, while an application counts."""

import socket
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.broker.testing import RunningBroker
from odradek.client.blocking import Admin, NewTopic, OdradekError, Producer
from tests.cluster.bookkeeper import LEDGER, PARTITIONS, SOURCE, Bookkeeper, check_numbers, read
from tests.cluster.test_network import wait_until
from tests.peers.etcd_server import RealEtcd
from tests.peers.kafka import free_ports
from tests.test_security_page import MUTUAL, TLS, blocks, make, odradek_as_function
from tests.test_security_page_cluster import THREE

pytestmark = pytest.mark.slow

SECTION: Final = "From open to closed, without downtime"
OPEN: Final = "9092"
SECURE: Final = "9094"
MORE: Final = 10
BASE: Final = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "broker.session.timeout.ms": "3000",
}


class PageBroker(RunningBroker):
    """A broker whose listeners are in its settings."""

    @property
    def listening(self) -> Sequence[str]:
        return ()


class Walk:
    """One broker or three, on the way that the page shows."""

    def __init__(self, directory: Path, count: int, of_cluster: Mapping[str, str]) -> None:
        self._directory = directory
        self.count = count
        ports = free_ports(3 * count)
        self._ports = {OPEN: ports[:count], SECURE: ports[count : 2 * count]}
        self.brokers = [
            PageBroker(directory / f"data-{number}", {}, {}, 0) for number in range(1, count + 1)
        ]
        self._own = [
            {
                **BASE,
                "node.id": str(number),
                **of_cluster,
                **({"inter.broker.listener.port": str(port)} if of_cluster else {}),
            }
            for number, port in enumerate(ports[2 * count :], 1)
        ]

    def addresses(self, listener: str) -> str:
        return ",".join(f"localhost:{port}" for port in self._ports[listener])

    def certificate(self, name: str) -> dict[str, Any]:
        return {
            "security_protocol": "SSL",
            "ssl_ca_location": str(self._directory / "ca.crt"),
            "ssl_certificate_location": str(self._directory / f"{name}.crt"),
            "ssl_key_location": str(self._directory / f"{name}.key"),
        }

    def configure(self, number: int, properties: str) -> None:
        """Give a broker the settings of the page, with its own ports and its own certificate."""
        text = textwrap.dedent(properties)
        for listener, ports in self._ports.items():
            text = text.replace(f":{listener}", f":{ports[number]}")
        given = dict(line.split("=", 1) for line in text.splitlines())
        for name in ("ssl.keystore.location", "ssl.truststore.location"):
            if name in given:
                given[name] = str(self._directory / given[name])
        if self.count > 1 and "ssl.keystore.location" in given:
            given["ssl.keystore.location"] = str(self._directory / f"broker{number + 1}.pem")
        self.brokers[number].config = {**self._own[number], **given}

    def roll(self, properties: str, application: Bookkeeper, **options: Any) -> None:
        """Restart one broker after the other while the application goes on."""
        listener = SECURE if options else OPEN
        for number, broker in enumerate(self.brokers):
            self.configure(number, properties)
            broker.restart()
            wait_until(lambda: self._sizes(listener, **options) == {self.count})
            application.wait_for_more(MORE)

    def _sizes(self, listener: str, **options: Any) -> set[int]:
        """Return the sizes of the in-sync sets."""
        try:
            with Admin(self.addresses(listener), **options) as admin:
                topics = admin.describe_topics(*admin.list_topics(internal=True))
        except OdradekError:  # of a broker that has just been stopped
            return set()
        return {len(each.isr) for topic in topics for each in topic.partitions}


@contextmanager
def walking(
    directory: Path, count: int, of_cluster: Mapping[str, str] | None = None
) -> Iterator[Walk]:
    """Run open brokers, with the certificates of the page at hand."""
    sections = [TLS, MUTUAL, *([THREE] if count > 1 else []), SECTION]
    for section in sections:
        make(directory, textwrap.dedent(blocks(section, "sh")[0]))
    walk = Walk(directory, count, of_cluster or {})
    with ExitStack() as stack:
        for number, broker in enumerate(walk.brokers):
            walk.configure(number, "listeners=PLAINTEXT://127.0.0.1:9092\n")
            broker.start()
            stack.callback(broker.close)
        yield walk


def go(walk: Walk, directory: Path) -> None:
    _, grant, revoke = blocks(SECTION, "sh")
    first, admin, last = blocks(SECTION, "properties")
    with_export = grant.splitlines()[0] + "\n"
    (directory / "admin.properties").write_text(
        textwrap.dedent(admin).replace(f"localhost:{SECURE}", walk.addresses(SECURE))
    )
    bob = walk.certificate("bob")
    with Admin(walk.addresses(OPEN)) as maker:
        maker.create_topics(
            [NewTopic(SOURCE.topic, 1, walk.count), NewTopic(LEDGER, PARTITIONS, walk.count)]
        )
    with Bookkeeper(walk.addresses(OPEN)) as nameless:
        nameless.wait_for_more(MORE)
        walk.roll(first, nameless)
        if walk.count > 1:
            between = first.replace("listener.name=PLAINTEXT", "listener.name=SECURE")
            assert between != first
            walk.roll(between, nameless)
        said = make(directory, odradek_as_function() + textwrap.dedent(grant))
        assert said.splitlines()[-1].startswith("allowed: "), said
        nameless.wait_for_more(MORE)
    with Bookkeeper(walk.addresses(SECURE), **bob) as named:
        named.wait_for_more(MORE)
        make(directory, odradek_as_function() + textwrap.dedent(with_export + revoke))
        named.wait_for_more(MORE)
        with (
            pytest.raises(OdradekError, match=r"(?i)authoriz"),
            Producer(walk.addresses(OPEN)) as forgotten,
        ):
            forgotten.send(LEDGER, b"x").result()
        assert any("denied: User:ANONYMOUS at 127.0.0.1 may" in it.log for it in walk.brokers)
        walk.roll(last, named, **walk.certificate("alice"))
        for address in walk.addresses(OPEN).split(","):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 60)
    check_numbers(read(walk.addresses(SECURE), named.next_number, **walk.certificate("alice")))


def test_one_broker_goes_from_open_to_closed_while_an_application_counts(tmp_path: Path) -> None:
    with walking(tmp_path, 1) as walk:
        go(walk, tmp_path)


@pytest.mark.peers
def test_three_brokers_go_from_open_to_closed_while_an_application_counts(
    real_etcd: RealEtcd, tmp_path: Path
) -> None:
    etcd = {"etcd.endpoints": ",".join(real_etcd.endpoints), "etcd.key.prefix": "/walked"}
    with walking(tmp_path, 3, etcd) as walk:
        go(walk, tmp_path)
