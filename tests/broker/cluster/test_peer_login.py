"""Passwords between brokers, over real sockets: one logs in, and both ask who the other one is."""

import base64
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import trio
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from odradek.broker.cluster.image import BrokerImage
from odradek.broker.cluster.peer_connection import (
    BrokerConnection,
    PeerUnreachable,
    peer_connection,
)
from odradek.broker.cluster.peer_login import PeerLogin
from odradek.broker.cluster.peer_network import PeerNetwork
from odradek.broker.config.addresses import (
    PLAINTEXT,
    SASL_PLAINTEXT,
    SASL_SSL,
    SSL,
    Listener,
)
from odradek.broker.config.sasl_listeners import sasl_of
from odradek.broker.config.settings import ConfigError
from odradek.broker.environment.env import HandshakeFailed, inline
from odradek.broker.environment.system import SystemClock, SystemNetwork
from odradek.broker.security.access import Authorizer
from odradek.broker.security.acl_table import NO_ACLS, AclTable, AclTableBuilder, ResourceAcls
from odradek.broker.security.acls import AclEntry, AclOperation, Permission
from odradek.broker.security.mechanism import Mechanism
from odradek.broker.security.plain import Plain
from odradek.broker.security.principal import Principal, parse_principal
from odradek.broker.security.scram_exchange import Scram
from odradek.broker.security.scram_users import MECHANISM_OF, ScramCredential, credential_from
from odradek.broker.server.known_client import ListenerSecurity
from odradek.broker.server.listener_sasl import ListenerSasl
from odradek.broker.tls.listener_tls import ListenerTls
from odradek.protocol import scram
from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from tests.broker.cluster.peer_listener import serve_brokers
from tests.broker.cluster.test_peer_network import CLUSTER, CLUSTER_RESOURCE
from tests.broker.config.configured import from_properties
from tests.broker.security.secured import no_file
from tests.broker.serving import Asked
from tests.certificates import Authority

SHA_256, SHA_512, PLAIN = "SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORD: Final = 'of "brokers", all'
SALT: Final = b"0123456789abcdef"


class Users:
    """The users of SCRAM of a cluster, as all its brokers know them."""

    def __init__(self, **passwords: str) -> None:
        self.known: dict[str, dict[object, ScramCredential]] = {}
        for name, password in passwords.items():
            self.put(name, password)

    def put(self, name: str, password: str, *mechanisms: str) -> None:
        """Give a user a password for some mechanisms, or for all."""
        credentials = dict(self.known.get(name, {}))
        for words in mechanisms or MECHANISM_OF:
            salted = scram.salted_password(
                scram.ALGORITHMS[words], password, SALT, scram.ITERATIONS_MIN
            )
            mechanism = MECHANISM_OF[words]
            credentials[mechanism] = credential_from(mechanism, salted, SALT, scram.ITERATIONS_MIN)
        self.known = {**self.known, name: credentials}


def jaas(module: str, **options: str) -> str:
    def quoted(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"')

    given = " ".join(f'{name}="{quoted(text)}"' for name, text in options.items())
    return f"{module} required {given};"


class Side:
    """One broker: what it logs in with, and whom it takes for brokers."""

    def __init__(
        self,
        users: Users,
        username: str = "broker",
        password: str = PASSWORD,
        *,
        mechanism: str = SHA_512,
        enabled: str = "",
        super_users: str = "",
        table: Callable[[], AclTable] | None = None,
        tls: ListenerTls | None = None,
        **properties: str,
    ) -> None:
        known = {"user_broker": PASSWORD, "user_alice": "of alice"} if mechanism == PLAIN else {}
        module = PLAIN_MODULE if mechanism == PLAIN else SCRAM_MODULE
        line = jaas(module, username=username, password=password, **known)
        settings = from_properties(
            {
                "sasl.enabled.mechanisms": enabled or mechanism,
                "sasl.mechanism.inter.broker.protocol": mechanism,
                f"listener.name.cluster.{mechanism.lower()}.sasl.jaas.config": line,
                **{name.replace("_", "."): text for name, text in properties.items()},
            }
        )
        self.settings = sasl_of(settings, CLUSTER, no_file)
        assert self.settings.login is not None
        self.login = self.settings.login
        self.users = users
        self.tls = tls
        self.authorizer = Authorizer(
            is_on=table is not None,
            super_users=[parse_principal(it) for it in super_users.split(";") if it],
            allows_unknown=True,
            table=table or (lambda: NO_ACLS),
            is_current=lambda: True,
        )

    @property
    def protocol(self) -> str:
        return SASL_PLAINTEXT if self.tls is None else SASL_SSL

    def network(self, *more: Listener) -> PeerNetwork:
        own = Listener(name=CLUSTER, host="127.0.0.1", port=0, protocol=self.protocol)
        return PeerNetwork(
            SystemNetwork(),
            listeners=[own, *more],
            tls={} if self.tls is None else {CLUSTER: self.tls},
            logins={CLUSTER: PeerLogin(CLUSTER, self.login, rng=random.Random(1))},
            is_broker=self.authorizer.is_broker,
        )

    def is_broker(self, principal: Principal, host: str) -> bool:
        return self.authorizer.is_broker(principal, host, self.login.principal)

    def security(self) -> ListenerSecurity:
        def mechanism(name: str) -> Mechanism:
            if name == PLAIN:
                return Plain(self.settings.passwords, key=b"key")
            return Scram(
                name,
                users=lambda: self.users.known,  # type: ignore[arg-type, return-value]
                secret=lambda: b"secret",
                nonce=lambda: base64.b16encode(random.randbytes(16)).decode(),
            )

        sasl = ListenerSasl(
            self.settings,
            mechanisms={name: mechanism(name) for name in self.settings.mechanisms},
            failure_seconds=0.001,
            clock=SystemClock(),
            offload=inline,
        )
        return ListenerSecurity(tls=None if self.tls is None else self.tls.for_brokers(), sasl=sasl)


@asynccontextmanager
async def served(side: Side) -> AsyncIterator[BrokerImage]:
    """Serve the listener for brokers of one side. Return its registration."""
    async with serve_brokers(side.is_broker, side.security()) as port:
        yield registered(side, port)


def registered(side: Side, port: int) -> BrokerImage:
    return BrokerImage(
        node_id=2,
        host="127.0.0.1",
        port=1,
        peer_host="127.0.0.1",
        peer_port=port,
        peer_listener=CLUSTER,
        peer_protocol=side.protocol,
        peer_principal=str(side.login.principal),
    )


@asynccontextmanager
async def linked(side: Side, broker: BrokerImage) -> AsyncIterator[BrokerConnection]:
    """Connect to a broker. Raises `PeerUnreachable`."""
    async with peer_connection(side.network(), broker, node_id=3, timeout_ms=30_000) as connection:
        yield connection


async def asked(connection: BrokerConnection, number: int = 7) -> int:
    answer = await connection.request(
        FIND_COORDINATOR, 1, FindCoordinatorRequest(key=str(number)), timeout_ms=30_000
    )
    return int(answer.node_id)


async def closed(connection: BrokerConnection) -> str:
    """Wait for the end of a connection that nobody asks anything. Return the reason."""
    while not connection.is_closed:  # noqa: ASYNC110
        await trio.sleep(0.001)
    return str(connection.why_closed)


def warnings(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING and part in record.getMessage()
    ]


@pytest.fixture
def users() -> Users:
    return Users(broker=PASSWORD, alice="of alice", b="of b")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512, PLAIN])
async def test_a_broker_logs_in_at_another(users: Users, mechanism: str) -> None:
    first, second = (Side(users, mechanism=mechanism) for _ in range(2))
    async with served(first) as broker, linked(second, broker) as connection:
        assert await asked(connection) == 7


async def test_brokers_may_log_in_by_different_mechanisms_one_of_which_has_a_new_password(
    users: Users,
) -> None:
    """The way to a new password: brokers are restarted with the other mechanism, one by one."""
    users.put("broker", "another one", SHA_256)
    both = f"{SHA_256},{SHA_512}"
    old = Side(users, mechanism=SHA_512, enabled=both)
    new = Side(users, password="another one", mechanism=SHA_256, enabled=both)
    for one, other in ((old, new), (new, old)):
        async with served(one) as broker, linked(other, broker) as connection:
            assert await asked(connection) == 7


async def test_passwords_are_sent_in_tls_and_a_certificate_for_servers_only_is_enough(
    users: Users, authority: Authority
) -> None:
    first, second = (
        Side(users, tls=tls_of(authority, name, ExtendedKeyUsageOID.SERVER_AUTH))
        for name in ("one", "two")
    )
    async with served(first) as broker, linked(second, broker) as connection:
        assert await asked(connection) == 7


def tls_of(authority: Authority, name: str, *usages: x509.ObjectIdentifier) -> ListenerTls:
    settings = {
        "ssl.keystore.location": authority.signed(name, usages=usages).both_file,
        "ssl.truststore.location": authority.file,
    }
    return ListenerTls(
        CLUSTER, from_properties(settings), is_for_brokers=True, has_sasl=True, has_login=True
    )


def test_certificates_are_made_for_clients_too_where_brokers_do_not_log_in(
    authority: Authority,
) -> None:
    signed = authority.signed("one", usages=[ExtendedKeyUsageOID.SERVER_AUTH])
    settings = from_properties(
        {"ssl.keystore.location": signed.both_file, "ssl.truststore.location": authority.file}
    )
    with pytest.raises(ConfigError, match="must have signed it, for servers and clients"):
        ListenerTls(CLUSTER, settings, is_for_brokers=True, has_sasl=True)


async def test_a_broker_that_logs_in_does_so_only_at_the_host_of_the_certificate(
    users: Users, authority: Authority
) -> None:
    """Whoever is in the place of a broker has a certificate for another host, and no password."""
    elsewhere = ListenerTls(
        CLUSTER,
        from_properties(
            {
                "ssl.keystore.location": authority.signed("x", hosts=["elsewhere"]).both_file,
                "ssl.truststore.location": authority.file,
            }
        ),
        has_sasl=True,
        has_login=True,
    )
    impostor = Side(users, tls=elsewhere)
    side = Side(users, tls=tls_of(authority, "one"))
    async with served(impostor) as broker:
        with pytest.raises(PeerUnreachable, match=r"is not for the host '127\.0\.0\.1'"):
            async with linked(side, broker):
                pass


async def test_a_wrong_password_is_one_line_and_is_tried_again_until_it_is_right(
    users: Users, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first = Side(users)
    network = Side(users, password="of another").network()
    async with served(first) as broker:
        refused = []
        for _ in range(20):
            with pytest.raises(PeerUnreachable) as error:
                async with peer_connection(network, broker, node_id=3, timeout_ms=30_000):
                    pass
            refused.append(error.value)
        assert all(each.is_logged and not each.is_refused for each in refused)
        place = f"127.0.0.1:{broker.peer_port}"
        assert warnings(caplog, "does not let this broker in") == [
            f"broker 2 at {place} does not let this broker in: authenticating at {place} by "
            "SCRAM-SHA-512: the broker answered SASL_AUTHENTICATION_FAILED (Authentication failed "
            "during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512); "
            "see listener.name.cluster.scram-sha-512.sasl.jaas.config; it is tried again and again"
        ]
        there = "to listener CLUSTER for brokers closed: its authentication by SCRAM-SHA-512 failed"
        while not warnings(caplog, there):  # noqa: ASYNC110
            await trio.sleep(0.001)
        assert len(warnings(caplog, there)) < 20  # few of those 20 have asked the other broker
        users.put("broker", "of another")
        answer = None
        while answer is None:
            try:
                async with peer_connection(
                    network, broker, node_id=3, timeout_ms=30_000
                ) as connection:
                    answer = await asked(connection)
            except PeerUnreachable:
                await trio.sleep(0.01)
        assert answer == 7
        assert "broker 2 can be used again" in caplog.messages
    assert not any(secret in caplog.text for secret in ("of another", PASSWORD))


async def test_a_user_that_does_not_exist_yet_is_made_while_the_brokers_run(users: Users) -> None:
    first, second = Side(users, "later", "of later"), Side(users, "later", "of later")
    network = second.network()
    async with served(first) as broker:
        with pytest.raises(PeerUnreachable, match="does not let this broker in"):
            async with peer_connection(network, broker, node_id=3, timeout_ms=30_000):
                pass
        users.put("later", "of later")
        while network.refusal_of(broker):  # noqa: ASYNC110
            await trio.sleep(0.001)
        async with peer_connection(network, broker, node_id=3, timeout_ms=30_000) as connection:
            assert await asked(connection) == 7


@pytest.mark.parametrize("mechanism", [SHA_512, PLAIN])
async def test_a_client_with_its_own_password_is_no_broker(
    users: Users, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It may log in, as at any listener, and then has an answer to nothing."""
    side = Side(users, mechanism=mechanism)
    # as one that asks nobody who the broker is
    alice = Side(users, "alice", "of alice", mechanism=mechanism, super_users="User:broker")
    async with served(side) as broker:
        with pytest.raises(PeerUnreachable, match="had logged in as User:alice; see in its log"):
            async with linked(alice, broker):
                pass
        (line,) = warnings(caplog, "to the port for brokers closed")
    assert "it is that of User:alice, which is no broker" in line


async def test_who_does_not_log_in_has_an_answer_to_nothing(
    users: Users, caplog: pytest.LogCaptureFixture
) -> None:
    side = Side(users)
    async with served(side) as broker:
        async with await trio.open_tcp_stream("127.0.0.1", broker.peer_port) as stream:
            await stream.send_all(Asked().frame(7))
            assert await stream.receive_some() == b""
        (line,) = warnings(caplog, "to listener CLUSTER for brokers closed")
    assert f"no API with key {FIND_COORDINATOR.key} is served" in line


async def test_a_broker_asks_nothing_of_one_that_logs_in_as_a_client(users: Users) -> None:
    """It is known by the principal with which it has registered, on the way there."""
    alice = Side(users, "alice", "of alice", super_users="User:broker")
    side = Side(users)
    async with served(alice) as broker:
        with pytest.raises(PeerUnreachable, match="it logs in as User:alice, which is no broker"):
            async with linked(side, broker):
                pass
        nobody = replace(broker, peer_principal="")
        with pytest.raises(PeerUnreachable, match="has registered without the principal"):
            async with linked(side, nobody):
                pass


async def test_the_end_of_an_entry_ends_the_connections_of_both_directions(
    users: Users, caplog: pytest.LogCaptureFixture
) -> None:
    """Each broker has a name of its own here, and is one by an entry."""
    entries = [AclEntry("User:b", "*", AclOperation.CLUSTER_ACTION, Permission.ALLOW)]
    builder = AclTableBuilder()
    builder.put(CLUSTER_RESOURCE, ResourceAcls(entries))
    tables = [builder.table]
    one = Side(users, table=lambda: tables[0])
    b = Side(users, "b", "of b", super_users="User:broker")
    async with (
        served(one) as to_one,
        served(b) as to_b,
        linked(b, to_one) as incoming,
        linked(one, to_b) as outgoing,
    ):
        assert (await asked(incoming), await asked(outgoing)) == (7, 7)
        tables[0] = NO_ACLS
        await closed(incoming)
        assert "it logs in as User:b, which is no broker" in await closed(outgoing)
    assert any("was closed: it logs in as User:b" in line for line in caplog.messages)


async def test_a_session_between_brokers_is_renewed(users: Users) -> None:
    """Kafka's KIP-368: after its end the broker would close the connection."""
    side = Side(users, connections_max_reauth_ms="1500")
    async with served(side) as broker, linked(side, broker) as connection:
        until = trio.current_time() + 3.2
        while trio.current_time() < until:
            assert await asked(connection) == 7
            await trio.sleep(0.02)
        # A new password counts at the next renewal.
        users.put("broker", "another one")
        assert "was not renewed" in await closed(connection)


async def test_a_broker_with_passwords_connects_without_them_only_by_a_listener_that_it_has(
    users: Users,
) -> None:
    """So brokers are restarted one by one, from a plain listener to another one with passwords."""
    side = Side(users)
    plain = replace(registered(side, 1), peer_listener="INSIDE", peer_protocol=PLAINTEXT)
    with pytest.raises(HandshakeFailed, match=r"serves brokers without SASL \(listener INSIDE\)"):
        await side.network().connect(plain)
    inside = Listener(name="INSIDE", host="127.0.0.1", port=0, protocol=PLAINTEXT)
    with pytest.raises(OSError, match="attempts to connect"):
        await side.network(inside).connect(plain)


@pytest.mark.parametrize("protocol", [SSL, SASL_SSL, "LATER"])
async def test_a_broker_does_not_send_a_password_by_another_protocol_than_its_own(
    users: Users, protocol: str
) -> None:
    side = Side(users)
    other = replace(registered(side, 1), peer_protocol=protocol)
    with pytest.raises(HandshakeFailed, match=f"it serves brokers with {protocol}"):
        await side.network().connect(other)


async def test_a_broker_without_a_password_is_told_the_settings(users: Users) -> None:
    own = Listener(name=CLUSTER, host="127.0.0.1", port=0, protocol=SASL_PLAINTEXT)
    network = PeerNetwork(SystemNetwork(), listeners=[own])
    with pytest.raises(HandshakeFailed, match=r"set sasl\.mechanism\.inter\.broker"):
        await network.connect(registered(Side(users), 1))
