"""Three broker processes and an etcd on this machine, whose listeners may be secured."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from odradek.broker.testing import RunningBroker
from odradek.client.blocking import Admin, OdradekError
from tests.certificates import Authority, Signed
from tests.cluster.test_network import wait_until
from tests.peers.etcd_server import RealEtcd
from tests.peers.kafka import free_ports

COUNT: Final = 3
INSIDE: Final = "INSIDE"
SECURE: Final = "SECURE"
MAP: Final = f"{INSIDE}:PLAINTEXT,{SECURE}:SSL"
SETTINGS: Final = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "broker.session.timeout.ms": "3000",
    "listener.security.protocol.map": MAP,
}
USER: Final = "ann"
PASSWORD: Final = "of-ann"
SASL_SETTINGS: Final = {
    "listener.security.protocol.map": f"{INSIDE}:PLAINTEXT,{SECURE}:SASL_SSL",
    "sasl.enabled.mechanisms": "PLAIN",
    f"listener.name.{SECURE.lower()}.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'user_{USER}="{PASSWORD}";'
    ),
}


class ClusterBroker(RunningBroker):
    """A broker whose listeners are in its settings."""

    @property
    def listening(self) -> Sequence[str]:
        return ()


class TlsBrokers:
    """Three brokers. Each has a port for each listener, and one for the others."""

    def __init__(
        self, etcd: RealEtcd, directory: Path, prefix: str, *, has_sasl: bool = False
    ) -> None:
        """`has_sasl`: clients of the listener with TLS give a password."""
        self._has_sasl = has_sasl
        self.authority = Authority(directory)
        self.alice = self.authority.signed("alice", hosts=())
        self._ports = free_ports(3 * COUNT)
        self.brokers = [
            ClusterBroker(
                directory / f"data-{node_id}",
                {
                    **SETTINGS,
                    **(SASL_SETTINGS if has_sasl else {}),
                    "node.id": str(node_id),
                    "inter.broker.listener.port": str(self.peer_port(node_id)),
                    "etcd.endpoints": ",".join(etcd.endpoints),
                    "etcd.key.prefix": prefix,
                },
                {},
                0,
            )
            for node_id in self.node_ids
        ]

    @property
    def node_ids(self) -> range:
        return range(1, 1 + COUNT)

    def peer_port(self, node_id: int) -> int:
        return self._ports[3 * node_id - 1]

    def port(self, node_id: int, listener: str) -> int:
        return self._ports[3 * node_id - 3 + (listener == SECURE)]

    def addresses(self, listener: str) -> str:
        return ",".join(f"localhost:{self.port(node_id, listener)}" for node_id in self.node_ids)

    def options(self, listener: str) -> dict[str, Any]:
        """Return the options of a client of that listener."""
        if listener == INSIDE:
            return {}
        passwords = {
            "sasl_mechanism": "PLAIN",
            "sasl_username": USER,
            "sasl_password": PASSWORD,
        }
        return {
            "security_protocol": "SASL_SSL" if self._has_sasl else "SSL",
            **(passwords if self._has_sasl else {}),
            "ssl_ca_location": self.authority.file,
            "ssl_certificate_location": self.alice.certificate_file,
            "ssl_key_location": self.alice.key_file,
        }

    def listen_on(self, node_id: int, *, between: str, listeners: tuple[str, ...]) -> None:
        """Set the listeners of a broker, which count from its next start on."""
        config = self.brokers[node_id - 1].config
        config["listeners"] = ",".join(
            f"{name}://127.0.0.1:{self.port(node_id, name)}" for name in listeners
        )
        config["advertised.listeners"] = ",".join(
            f"{name}://localhost:{self.port(node_id, name)}" for name in listeners
        )
        config["inter.broker.listener.name"] = between
        if SECURE in listeners and "ssl.keystore.location" not in config:
            self.certify(node_id, self.authority.signed(f"broker{node_id}"))

    def certify(self, node_id: int, signed: Signed) -> None:
        """Give a broker a certificate. Its name is one of brokers by a rule."""
        config = self.brokers[node_id - 1].config
        config["ssl.keystore.location"] = signed.both_file
        config["ssl.truststore.location"] = self.authority.file
        config["ssl.principal.mapping.rules"] = "RULE:^CN=broker[0-9],O=Test$/broker/,DEFAULT"

    def wait_in_sync(self, listener: str, count: int = COUNT) -> None:
        """Return when each partition has so many replicas in sync."""
        wait_until(lambda: self.in_sync(listener) == {count})

    def in_sync(self, listener: str) -> set[int]:
        """Return the sizes of the in-sync sets."""
        try:
            with Admin(self.addresses(listener), **self.options(listener)) as admin:
                topics = admin.describe_topics(*admin.list_topics(internal=True))
        except OdradekError:  # of a broker that has just been stopped
            return set()
        return {len(each.isr) for topic in topics for each in topic.partitions}


@contextmanager
def tls_brokers(
    etcd: RealEtcd,
    directory: Path,
    prefix: str,
    *,
    between: str,
    listeners: tuple[str, ...],
    has_sasl: bool = False,
) -> Iterator[TlsBrokers]:
    """Run three brokers while the block runs."""
    found = TlsBrokers(etcd, directory, prefix, has_sasl=has_sasl)
    with ExitStack() as stack:
        for broker, node_id in zip(found.brokers, found.node_ids, strict=True):
            found.listen_on(node_id, between=between, listeners=listeners)
            broker.start()
            stack.callback(broker.close)
        yield found
