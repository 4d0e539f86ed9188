"""A real Kafka with SCRAM over TLS and access control, asked like our secured broker."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from odradek.broker.testing import SCRAM_MODULE, run_secured_broker
from odradek.client.blocking import Admin
from tests.certificates import Authority
from tests.peers.kafka import RealKafka

MECHANISM: Final = "SCRAM-SHA-512"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ADMIN: Final = "admin"
"""The user who may do everything."""
LISTENER: Final = "SASL_SSL"


class SecuredAddress(Protocol):
    """A broker with SCRAM over TLS, and what its users need: ours, or a real Kafka."""

    @property
    def address(self) -> str: ...

    def options(self, user: str) -> dict[str, Any]:
        """Return the options of Odradek's clients for a user."""

    def properties(self, user: str) -> dict[str, str]:
        """Return the settings of Java's clients for a user."""


@dataclass(frozen=True, slots=True)
class SecuredKafka:
    """A real Kafka and its users."""

    kafka: RealKafka
    users: Mapping[str, str]
    certificate: str

    @property
    def address(self) -> str:
        return f"{self.kafka.host}:{self.kafka.ports[LISTENER]}"

    def options(self, user: str) -> dict[str, Any]:
        return {
            "security_protocol": LISTENER,
            "ssl_ca_location": self.certificate,
            "sasl_mechanism": MECHANISM,
            "sasl_username": user,
            "sasl_password": self.users[user],
        }

    def properties(self, user: str) -> dict[str, str]:
        login = f'{SCRAM_MODULE} required username="{user}" password="{self.users[user]}";'
        return {
            "bootstrap.servers": self.address,
            "security.protocol": LISTENER,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.certificate,
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": login,
        }


@contextmanager
def run_ours(users: Mapping[str, str], directory: Path) -> Iterator[SecuredAddress]:
    """Run our broker. The user `ADMIN` may do everything."""
    del directory
    config = {"group.initial.rebalance.delay.ms": "0"}
    with run_secured_broker(
        users, super_users=[ADMIN], mechanisms=[MECHANISM], config=config
    ) as broker:
        yield broker
        assert "Traceback" not in broker.log, broker.log


@contextmanager
def run_kafka(users: Mapping[str, str], directory: Path) -> Iterator[SecuredAddress]:
    """Run a real Kafka, with files in this directory. The user `ADMIN` may do everything."""
    authority = Authority(directory)
    settings = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:ANONYMOUS;User:{ADMIN}",
        "sasl.enabled.mechanisms": MECHANISM,
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.signed("broker").both_file,
    }
    with RealKafka(settings=settings, listeners=[LISTENER]) as kafka:
        with Admin(kafka.address) as admin:  # nobody in particular, on the listener without TLS
            for name, password in users.items():
                admin.set_password(name, password, mechanisms=[MECHANISM])
        yield SecuredKafka(kafka, users, authority.file)
