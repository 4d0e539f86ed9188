"""Three broker processes and an etcd on this machine, which log in at each other by SCRAM."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from cryptography.x509.oid import ExtendedKeyUsageOID

from odradek.broker.testing import SCRAM_MODULE
from odradek.client.blocking import Admin, OdradekError
from tests.certificates import Authority
from tests.cluster.test_network import wait_until
from tests.cluster.tls_brokers import COUNT, INSIDE, SECURE, SETTINGS, ClusterBroker
from tests.peers.etcd_server import RealEtcd
from tests.peers.kafka import free_ports

SHA_256: Final = "SCRAM-SHA-256"
SHA_512: Final = "SCRAM-SHA-512"
BROKER: Final = "broker"
ADMIN: Final = "ann"
STRANGER: Final = "eve"
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def password_of(user: str) -> str:
    return f"of-{user}"


def in_jaas(username: str, password: str) -> str:
    return f'{SCRAM_MODULE} required username="{username}" password="{password}";'


class PasswordBrokers:
    """Three brokers with a plain listener and one of SASL_PLAINTEXT, and a port for the others."""

    def __init__(self, etcd: RealEtcd, directory: Path, prefix: str) -> None:
        self.authority_file = ""
        """The certificate that clients trust, if the listener is one of SASL_SSL."""
        self._directory = directory
        self._ports = free_ports(3 * COUNT)
        self._store = {"etcd.endpoints": ",".join(etcd.endpoints), "etcd.key.prefix": prefix}
        self.brokers = [
            ClusterBroker(
                directory / f"data-{node_id}",
                {
                    **SETTINGS,
                    **self._store,
                    "listener.security.protocol.map": f"{INSIDE}:PLAINTEXT,{SECURE}:SASL_PLAINTEXT",
                    "node.id": str(node_id),
                    "inter.broker.listener.port": str(self.peer_port(node_id)),
                },
                {},
                0,
            )
            for node_id in self.node_ids
        ]

    @property
    def node_ids(self) -> range:
        return range(1, 1 + COUNT)

    def port(self, node_id: int, listener: str = SECURE) -> int:
        return self._ports[3 * node_id - 3 + (listener == SECURE)]

    def peer_port(self, node_id: int) -> int:
        return self._ports[3 * node_id - 1]

    def addresses(self, listener: str = SECURE) -> str:
        return ",".join(f"127.0.0.1:{self.port(node_id, listener)}" for node_id in self.node_ids)

    def options(self, user: str = ADMIN, listener: str = SECURE) -> dict[str, Any]:
        """Return the options of a client of that listener."""
        if listener == INSIDE:
            return {}
        tls = {"security_protocol": "SASL_SSL", "ssl_ca_location": self.authority_file}
        return {
            **(tls if self.authority_file else {"security_protocol": "SASL_PLAINTEXT"}),
            "sasl_mechanism": SHA_256,
            "sasl_username": user,
            "sasl_password": password_of(user),
        }

    def create_user(self, name: str, password: str = "", *words: str) -> None:
        """Make a user in etcd, without a broker, by the command."""
        file = self._directory / f"{name}.password"
        file.write_text(password or password_of(name))
        store = [f"--set={setting}={value}" for setting, value in self._store.items()]
        command = [*ClusterBroker.command[:-1], "user", "create", name, *store]
        subprocess.run(
            [*command, "--password-file", str(file), *words],
            check=True,
            capture_output=True,
            timeout=60,
            env={"PYTHONPATH": ":".join(sys.path)},
        )

    def listen_on(self, node_id: int, *listeners: str, between: str) -> None:
        """Set the listeners of a broker, which count from its next start on."""
        self.brokers[node_id - 1].config |= {
            "listeners": ",".join(
                f"{name}://127.0.0.1:{self.port(node_id, name)}" for name in listeners
            ),
            "inter.broker.listener.name": between,
        }

    def log_in_as(
        self, node_id: int, user: str = BROKER, password: str = "", mechanism: str = SHA_512
    ) -> None:
        """Set what a broker logs in with at the others, from its next start on."""
        name = f"listener.name.{SECURE.lower()}.{mechanism.lower()}.sasl.jaas.config"
        self.brokers[node_id - 1].config |= {
            "sasl.mechanism.inter.broker.protocol": mechanism,
            name: in_jaas(user, password or password_of(user)),
        }

    def wait_in_sync(self, listener: str = SECURE, count: int = COUNT) -> None:
        """Return when each partition has so many replicas in sync."""
        wait_until(lambda: self.in_sync(listener) == {count})

    def in_sync(self, listener: str = SECURE) -> set[int]:
        """Return the sizes of the in-sync sets."""
        try:
            with Admin(self.addresses(listener), **self.options(listener=listener)) as admin:
                topics = admin.describe_topics(*admin.list_topics(internal=True))
        except OdradekError:  # of a broker that has just been stopped
            return set()
        return {len(each.isr) for topic in topics for each in topic.partitions}


@contextmanager
def password_brokers(
    etcd: RealEtcd,
    directory: Path,
    prefix: str,
    *listeners: str,
    between: str = SECURE,
    users: Mapping[int, str] = MappingProxyType({}),
    more: Mapping[str, str] = NOTHING,
    authority: Authority | None = None,
) -> Iterator[PasswordBrokers]:
    """Run three brokers while the block runs. Each logs in as its user, or as `BROKER`.

    With an authority the listener has TLS, and its certificate is for servers only.
    """
    found = PasswordBrokers(etcd, directory, prefix)
    if authority is not None:
        found.authority_file = authority.file
        signed = authority.signed("server", usages=[ExtendedKeyUsageOID.SERVER_AUTH])
        more = {
            **more,
            "listener.security.protocol.map": f"{SECURE}:SASL_SSL",
            "ssl.keystore.location": signed.both_file,
            "ssl.truststore.location": authority.file,
        }
    for name in {BROKER, ADMIN, STRANGER, *users.values()}:
        found.create_user(name)
    with ExitStack() as stack:
        for broker, node_id in zip(found.brokers, found.node_ids, strict=True):
            found.listen_on(node_id, *(listeners or (SECURE,)), between=between)
            if between == SECURE:
                found.log_in_as(node_id, users.get(node_id, BROKER))
            broker.config |= more
            broker.start()
            stack.callback(broker.close)
        yield found
