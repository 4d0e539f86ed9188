"""TLS between brokers, over real sockets: both sides ask who the other one is."""

import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import trio
from cryptography import x509

from odradek.broker.cluster.image import BrokerImage
from odradek.broker.cluster.peer_connection import (
    BrokerConnection,
    PeerUnreachable,
    open_peer,
    peer_connection,
)
from odradek.broker.cluster.peer_network import PeerNetwork
from odradek.broker.config.addresses import PLAINTEXT, SSL, Listener
from odradek.broker.config.settings import ConfigError
from odradek.broker.environment.env import HandshakeFailed
from odradek.broker.environment.system import SystemNetwork
from odradek.broker.security.access import Authorizer
from odradek.broker.security.acl_table import NO_ACLS, AclTable, AclTableBuilder, ResourceAcls
from odradek.broker.security.acls import (
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourceKind,
    ResourcePattern,
)
from odradek.broker.security.principal import ANONYMOUS, Principal, parse_principal
from odradek.broker.server.known_client import ListenerSecurity
from odradek.broker.tls.listener_tls import ListenerTls
from tests.broker.cluster.peer_listener import PATIENCE_SECONDS, serve_brokers
from tests.broker.config.configured import from_properties
from tests.broker.serving import Asked
from tests.certificates import DAY, Authority, Signed, named

CLUSTER: Final = "CLUSTER"
CLUSTER_RESOURCE: Final = ResourcePattern(ResourceKind.CLUSTER, PatternType.LITERAL, CLUSTER_NAME)
ALERT: Final = b"\x15"
"""The first byte of an answer of TLS to what is no TLS."""


class Side:
    """One broker: its certificate, and what it takes for brokers."""

    def __init__(
        self,
        signed: Signed,
        trusted: Authority,
        *,
        super_users: str = "",
        table: Callable[[], AclTable] | None = None,
        **properties: str,
    ) -> None:
        settings = {
            "ssl.keystore.location": signed.both_file,
            "ssl.truststore.location": trusted.file,
            **{name.replace("_", "."): text for name, text in properties.items()},
        }
        self.tls = ListenerTls(CLUSTER, from_properties(settings), is_for_brokers=True)
        self.authorizer = Authorizer(
            is_on=table is not None,
            super_users=[parse_principal(it) for it in super_users.split(";") if it],
            allows_unknown=True,
            table=table or (lambda: NO_ACLS),
            is_current=lambda: True,
        )

    def network(self) -> PeerNetwork:
        return PeerNetwork(
            SystemNetwork(),
            listeners=[listener(SSL)],
            tls={CLUSTER: self.tls},
            is_broker=self.authorizer.is_broker,
        )

    def is_broker(self, principal: Principal, host: str) -> bool:
        return self.authorizer.is_broker(principal, host, self.tls.own_principal())


def listener(protocol: str, name: str = CLUSTER) -> Listener:
    return Listener(name=name, host="127.0.0.1", port=0, protocol=protocol)


@asynccontextmanager
async def served(side: Side) -> AsyncIterator[BrokerImage]:
    """Serve the listener for brokers of one side. Return its registration."""
    async with serve_brokers(side.is_broker, ListenerSecurity(tls=side.tls.for_brokers())) as port:
        yield registered(port)


def registered(port: int, name: str = CLUSTER, protocol: str = SSL) -> BrokerImage:
    return BrokerImage(
        node_id=2,
        host="127.0.0.1",
        port=1,
        peer_host="127.0.0.1",
        peer_port=port,
        peer_listener=name,
        peer_protocol=protocol,
    )


async def asked(network: PeerNetwork, broker: BrokerImage, number: int = 7) -> int | None:
    """Return a broker's answer; None if it has closed the connection without one."""
    stream = (await network.connect(broker)).stream
    asking = Asked()
    received = b""
    try:
        await stream.send_all([asking.frame(number)])
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            buffer = bytearray(1000)
            count = await stream.receive_into(memoryview(buffer))
            if not count:
                break
            received += buffer[:count]
    except trio.BrokenResourceError:
        pass
    finally:
        await stream.aclose()
    if not received or received.startswith(ALERT):
        return None
    return asking.answered(received[4:])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def other_authority(tmp_path: Path) -> Authority:
    directory = tmp_path / "other"
    directory.mkdir()
    return Authority(directory, "other")


async def test_brokers_with_one_name_trust_each_other(authority: Authority) -> None:
    first, second = (Side(authority.signed("broker"), authority) for _ in range(2))
    async with served(first) as broker:
        assert await asked(second.network(), broker) == 7


async def test_brokers_have_one_name_by_the_rules_of_principals(authority: Authority) -> None:
    rules = "RULE:^CN=broker[0-9]+,O=Test$/broker/,DEFAULT"
    first, second = (
        Side(authority.signed(name), authority, ssl_principal_mapping_rules=rules)
        for name in ("broker1", "broker2")
    )
    async with served(first) as broker:
        assert await asked(second.network(), broker) == 7


async def test_a_client_with_a_certificate_of_the_same_authority_learns_nothing(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """It has no answer, to nothing. One line says who it is and what a broker is."""
    side = Side(authority.signed("broker"), authority)
    alice = authority.signed("alice")
    async with served(side) as broker:
        # as one that asks nobody who the broker is
        answer = await trio.to_thread.run_sync(ask_by_hand, authority, alice, broker.peer_port)
    assert answer == b""
    (line,) = [each for each in caplog.messages if "closed" in each]
    assert "to the port for brokers closed: it is that of User:CN=alice,O=Test, which is no" in line
    assert [each.levelno for each in caplog.records if "closed" in each.getMessage()] == [
        logging.WARNING
    ]


def ask_by_hand(authority: Authority, signed: Signed, port: int) -> bytes:
    context = ssl.create_default_context(cafile=authority.file)
    context.load_cert_chain(signed.certificate_file, signed.key_file)
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as sock,
        context.wrap_socket(sock, server_hostname="localhost") as tls,
    ):
        try:
            tls.sendall(Asked().frame(7))
            return tls.recv(1000)
        except (ConnectionResetError, BrokenPipeError, ssl.SSLError):
            return b""


async def test_a_broker_asks_nothing_of_a_client_in_the_place_of_another_broker(
    authority: Authority,
) -> None:
    """The certificate is of the right authority and for the right host, and still no broker's."""
    alice = Side(authority.signed("alice"), authority, super_users="User:CN=broker,O=Test")
    broker = Side(authority.signed("broker"), authority)
    async with served(alice) as impostor:
        with pytest.raises(HandshakeFailed, match=r"that of User:CN=alice,O=Test, which is no"):
            await asked(broker.network(), impostor)


async def test_a_super_user_is_a_broker(authority: Authority) -> None:
    names = "User:CN=a,O=Test;User:CN=b,O=Test"
    first, second = (
        Side(authority.signed(name), authority, super_users=names) for name in ("a", "b")
    )
    async with served(first) as broker:
        assert await asked(second.network(), broker) == 7


async def closed(caplog: pytest.LogCaptureFixture, count: int) -> list[str]:
    """Return the lines about connections that were not let in, when there are so many."""

    def lines() -> list[str]:
        return [it for it in caplog.messages if "to listener CLUSTER for brokers closed" in it]

    while len(lines()) < count:  # noqa: ASYNC110
        await trio.sleep(0.001)
    return lines()


async def test_an_entry_makes_a_broker_and_its_end_ends_the_connection(
    authority: Authority,
) -> None:
    """The rest of Kafka's rule: CLUSTER_ACTION. That nothing is said of the cluster allows none."""
    entries = [AclEntry("User:CN=b,O=Test", "*", AclOperation.CLUSTER_ACTION, Permission.ALLOW)]
    tables = [NO_ACLS]
    server = Side(authority.signed("a"), authority, table=lambda: tables[0])
    client = Side(authority.signed("b"), authority, super_users="User:CN=a,O=Test")
    async with served(server) as broker:
        assert await asked(client.network(), broker) is None
        builder = AclTableBuilder()
        builder.put(CLUSTER_RESOURCE, ResourceAcls(entries))
        tables[0] = builder.table
        assert await asked(client.network(), broker) == 7
        stream = (await client.network().connect(broker)).stream
        tables[0] = NO_ACLS
        assert await stream.receive_into(memoryview(bytearray(1))) == 0  # not before the entry goes
        await stream.aclose()


async def ended(connection: BrokerConnection) -> str:
    """Wait for the end of a connection that nobody asks anything. Return the reason."""
    while not connection.is_closed:  # noqa: ASYNC110
        await trio.sleep(0.001)
    return str(connection.why_closed)


async def test_the_end_of_an_entry_ends_the_connections_to_a_broker_that_leads(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """The other brokers ask it nothing any more, and do not connect to it again."""
    entries = [AclEntry("User:CN=b,O=Test", "*", AclOperation.CLUSTER_ACTION, Permission.ALLOW)]
    builder = AclTableBuilder()
    builder.put(CLUSTER_RESOURCE, ResourceAcls(entries))
    tables = [builder.table]
    follower = Side(authority.signed("a"), authority, table=lambda: tables[0])
    leader = Side(authority.signed("b"), authority, super_users="User:CN=a,O=Test")
    network = follower.network()
    async with served(leader) as broker:
        async with peer_connection(network, broker, node_id=3, timeout_ms=30_000) as connection:
            tables[0] = NO_ACLS
            assert "is that of User:CN=b,O=Test, which is no broker" in await ended(connection)
        with pytest.raises(PeerUnreachable, match="which is no broker") as refused:
            async with peer_connection(network, broker, node_id=3, timeout_ms=30_000):
                pass
        assert refused.value.is_logged
    assert sum("which is no broker" in line for line in caplog.messages) == 2


async def test_other_authorities_end_the_connections_that_the_old_ones_have_let_in(
    authority: Authority, other_authority: Authority, tmp_path: Path
) -> None:
    """Of both directions. They are opened again, and then the new ones decide."""
    trusted = tmp_path / "trusted.crt"
    trusted.write_text(authority.pem)
    side = Side(authority.signed("broker"), authority, ssl_truststore_location=str(trusted))
    other = Side(authority.signed("broker"), authority)
    async with (
        served(side) as to_side,
        served(other) as to_other,
        peer_connection(side.network(), to_other, node_id=3, timeout_ms=30_000) as outgoing,
        peer_connection(other.network(), to_side, node_id=2, timeout_ms=30_000) as incoming,
    ):
        assert side.tls.reload()
        trusted.write_text(f"{authority.pem}{other_authority.pem}")
        assert side.tls.reload()
        assert "by authorities that this broker had before" in await ended(outgoing)
        assert "closed the connection" in await ended(incoming)
        async with peer_connection(side.network(), to_other, node_id=3, timeout_ms=30_000):
            pass


async def test_a_foreign_certificate_is_not_let_in(
    authority: Authority, other_authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    side = Side(authority.signed("broker"), authority)
    stranger = Side(other_authority.signed("broker"), other_authority)
    async with served(side) as broker:
        with pytest.raises(HandshakeFailed, match="is not trusted"):
            await asked(stranger.network(), broker)
        # as one that takes any certificate for a broker's
        foreign = other_authority.signed("broker")
        assert (
            await trio.to_thread.run_sync(ask_by_hand, authority, foreign, broker.peer_port) == b""
        )
        first, second = await closed(caplog, 2)
    assert "it does not trust the certificate of this broker" in first
    assert "its certificate is not trusted" in second


async def test_an_expired_certificate_is_not_let_in_and_both_sides_say_why(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    side = Side(authority.signed("broker"), authority)
    expired = Side(
        authority.signed("old", subject=named("broker"), begins=-2 * DAY, ends=-DAY), authority
    )
    async with served(side) as broker, trio.open_nursery() as nursery:
        with pytest.raises(PeerUnreachable, match="the certificate of this client has expired"):
            await open_peer(expired.network(), broker, nursery, node_id=3, timeout_ms=30_000)
        (line,) = await closed(caplog, 1)
    assert "its certificate is not trusted (certificate has expired)" in line


async def test_a_certificate_for_another_host_is_refused_unless_hosts_are_not_compared(
    authority: Authority,
) -> None:
    elsewhere = Side(authority.signed("broker", hosts=["elsewhere"]), authority)
    strict = Side(authority.signed("broker"), authority)
    lax = Side(authority.signed("broker"), authority, ssl_endpoint_identification_algorithm="")
    async with served(elsewhere) as broker:
        with pytest.raises(HandshakeFailed, match=r"is not for the host '127\.0\.0\.1'"):
            await asked(strict.network(), broker)
        assert await asked(lax.network(), broker) == 7


async def test_a_broker_without_tls_is_not_let_in(authority: Authority) -> None:
    side = Side(authority.signed("broker"), authority)
    async with served(side) as broker:
        plain = PeerNetwork(SystemNetwork(), listeners=[listener(PLAINTEXT)])
        with pytest.raises(HandshakeFailed, match="serves brokers with SSL"):
            await asked(plain, broker)
        deceived = registered(broker.peer_port, protocol=PLAINTEXT)
        assert await asked(plain, deceived) is None


async def test_a_broker_with_tls_connects_without_it_only_by_a_listener_that_it_has(
    authority: Authority,
) -> None:
    """So brokers are restarted one by one, from a plain listener to another one with TLS."""
    side = Side(authority.signed("broker"), authority)
    plain = registered(1, "INSIDE", PLAINTEXT)
    with pytest.raises(HandshakeFailed, match="without TLS"):
        await asked(side.network(), plain)
    on_the_way = PeerNetwork(
        SystemNetwork(),
        listeners=[listener(SSL), listener(PLAINTEXT, "INSIDE")],
        tls={CLUSTER: side.tls},
    )
    with pytest.raises(OSError, match="attempts to connect"):
        await asked(on_the_way, plain)


def replace_by(files: Signed, new: Signed) -> None:
    Path(files.directory / "broker.pem").write_text(new.key_pem + new.certificate_pem)


async def test_a_certificate_that_is_replaced_counts_for_both_directions(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    files = authority.signed("broker")
    rules = "RULE:^CN=broker2?,O=Test$/broker/"
    side = Side(files, authority, ssl_principal_mapping_rules=rules)
    other = Side(authority.signed("broker"), authority)
    replace_by(files, authority.signed("broker2"))
    assert side.tls.reload()
    async with served(side) as broker:
        with pytest.raises(HandshakeFailed, match="CN=broker2"):
            await asked(other.network(), broker)
    async with served(other) as broker:
        assert await asked(side.network(), broker) is None
    (line,) = [each for each in caplog.messages if "to the port for brokers closed" in each]
    assert "it is that of User:CN=broker2,O=Test, which is no broker" in line


def test_a_broker_whose_certificate_has_no_subject_does_not_start(authority: Authority) -> None:
    """All certificates without a subject have one principal, those of clients, too."""
    unnamed = authority.signed("broker", subject=x509.Name([]))
    with pytest.raises(ConfigError, match="makes the principal User:, by which brokers cannot"):
        Side(unnamed, authority)
    with pytest.raises(ConfigError, match="makes the principal User:, by which brokers cannot"):
        Side(authority.signed("broker"), authority, ssl_principal_mapping_rules="RULE:.*//")
    with pytest.raises(ConfigError, match="makes the principal User:ANONYMOUS, by which"):
        Side(
            authority.signed("broker"),
            authority,
            ssl_principal_mapping_rules="RULE:^.*$/ANONYMOUS/",
        )


def test_a_principal_without_a_name_is_no_broker(authority: Authority) -> None:
    """Not even if it is this broker's own, on a listener that a cluster has left, say."""
    side = Side(authority.signed("broker"), authority, super_users="User:")
    unnamed = Principal("User", "")
    assert not side.is_broker(unnamed, "127.0.0.1")
    assert not side.authorizer.is_broker(unnamed, "127.0.0.1", unnamed)


async def test_a_client_without_a_subject_is_no_broker(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    side = Side(authority.signed("broker"), authority, super_users="User:")
    client = authority.signed("client", subject=x509.Name([]))
    async with served(side) as broker:
        answer = await trio.to_thread.run_sync(ask_by_hand, authority, client, broker.peer_port)
    assert answer == b""
    (line,) = [each for each in caplog.messages if "to the port for brokers closed" in each]
    assert "it is that of User:, which is no broker" in line


def test_a_certificate_of_another_name_is_not_taken_while_the_broker_runs(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """The other brokers know this one by its name, and would close its connections."""
    files = authority.signed("broker")
    side = Side(files, authority)
    before = side.tls.current()
    replace_by(files, authority.signed("broker2"))
    assert not side.tls.reload()
    assert side.tls.current() is before
    assert "is that of User:CN=broker2,O=Test, and that of before is that of User:CN=broker," in (
        caplog.text
    )
    replace_by(files, authority.signed("other", subject=named("broker")))
    assert side.tls.reload()


def test_an_expired_authority_is_refused_with_its_date(tmp_path: Path) -> None:
    """No broker could connect to another one: each certificate that it has signed is refused."""
    expired = Authority(tmp_path, ends=-DAY)
    date = expired.certificate.not_valid_after_utc
    with pytest.raises(ConfigError) as refused:
        Side(expired.signed("broker"), expired)
    assert str(refused.value) == (
        "Brokers cannot use listener CLUSTER among each other: other brokers would not trust "
        f"{tmp_path}/broker.pem, because its authority CN=ca,O=Test has expired at "
        f"{date:%Y-%m-%d %H:%M} UTC."
    )


async def test_nobody_without_a_name_is_a_broker_where_a_certificate_is_needed(
    authority: Authority,
) -> None:
    side = Side(authority.signed("broker"), authority)
    assert not side.is_broker(ANONYMOUS, "127.0.0.1")
    async with served(side) as broker:
        context = ssl.create_default_context(cafile=authority.file)

        def without() -> bytes:
            with (
                socket.create_connection(("127.0.0.1", broker.peer_port), 60) as sock,
                context.wrap_socket(sock, server_hostname="localhost") as tls,
            ):
                return tls.recv(1)

        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            await trio.to_thread.run_sync(without)
