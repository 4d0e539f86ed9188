"""A broker with SCRAM-SHA-512 over TLS, and applications with exactly the rights that they need.

Each application has a user, topics, a group and a transactional id of its own. So the rights of one
say nothing about another.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.admin import AclBindingFilter as Filter

from odradek.broker.testing import RunningBroker, run_broker
from tests.certificates import Authority
from tests.client.live import name_of
from tests.compat import confluent
from tests.compat.conftest import DEADLINE_SECONDS
from tests.secured_broker import AUTHORIZER

MECHANISM: Final = "SCRAM-SHA-512"
LOGIN: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PLAIN_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
ADMIN: Final = "admin"
ITERATIONS: Final = 4096
VALUES: Final = (b"0", b"1", b"2", b"3", b"4")


def password_of(user: str) -> str:
    return f"the password of {user}"


class SaslSslBroker(RunningBroker):
    """A broker whose listener has TLS and asks for SASL."""

    listener = "SASL_SSL"


@dataclass(frozen=True, slots=True)
class Secured:
    """The broker, and how its users reach it with each library."""

    broker: RunningBroker
    authority_file: str

    @property
    def address(self) -> str:
        return f"localhost:{self.broker.port}"

    def librdkafka(self, user: str = ADMIN) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.authority_file,
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": password_of(user),
        }

    def java(self, user: str = ADMIN) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority_file,
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f'{LOGIN} username="{user}" password="{password_of(user)}";',
        }

    def python(self, user: str) -> dict[str, str]:
        """Return the settings of kafka-python and aiokafka."""
        return {
            "security_protocol": "SASL_SSL",
            "ssl_cafile": self.authority_file,
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": user,
            "sasl_plain_password": password_of(user),
        }

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address, **self.librdkafka()})

    def values(self, topic: str, count: int) -> list[bytes]:
        """Return what is committed in a topic."""
        settings: dict[str, Any] = self.librdkafka()
        return confluent.values(confluent.read(self.address, topic, count=count, **settings))


@contextmanager
def run_secured(directory: Path, *plain_users: str) -> Iterator[Secured]:
    """Run the broker while the block runs. Its certificate is signed by an authority.

    `plain_users` may authenticate by PLAIN, too.
    """
    authority = Authority(directory)
    of_plain = " ".join(f'"user_{name}"="{password_of(name)}"' for name in (ADMIN, *plain_users))
    config = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{ADMIN}",
        "ssl.keystore.location": authority.signed("broker").both_file,
        "sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{PLAIN_LOGIN} {of_plain};",
        "group.initial.rebalance.delay.ms": "0",
    }
    with run_broker(config=config, kind=SaslSslBroker) as broker:
        secured = Secured(broker, authority.file)
        first = {**secured.librdkafka(), "sasl.mechanism": "PLAIN"}  # there is no other user yet
        make_user(AdminClient({"bootstrap.servers": secured.address, **first}), ADMIN)
        yield secured
        assert "Traceback" not in broker.log, broker.log


def make_user(admin: AdminClient, name: str) -> None:
    """Make a user of SCRAM-SHA-512, or set its password."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    wanted = UserScramCredentialUpsertion(name, info, password_of(name).encode())
    for answer in admin.alter_user_scram_credentials([wanted]).values():
        answer.result(DEADLINE_SECONDS)


@dataclass(frozen=True, slots=True)
class Application:
    """The names of one application, and the rights that it needs."""

    user: str
    source: str
    target: str
    group: str
    transactional_id: str

    @property
    def principal(self) -> str:
        return f"User:{self.user}"

    @property
    def rights(self) -> dict[str, tuple[ResourceType, str, AclOperation]]:
        return {
            "READ source": (ResourceType.TOPIC, self.source, AclOperation.READ),
            "WRITE target": (ResourceType.TOPIC, self.target, AclOperation.WRITE),
            "READ group": (ResourceType.GROUP, self.group, AclOperation.READ),
            "WRITE id": (
                ResourceType.TRANSACTIONAL_ID,
                self.transactional_id,
                AclOperation.WRITE,
            ),
        }

    def binding(self, right: str) -> AclBinding:
        return AclBinding(*self._entry(right))

    def filter(self, right: str) -> Filter:
        return Filter(*self._entry(right))

    def _entry(self, right: str) -> tuple[Any, ...]:
        resource, name, operation = self.rights[right]
        pattern, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        return resource, name, pattern, self.principal, "*", operation, allow


RIGHTS: Final = tuple(Application("", "", "", "", "").rights)


def deployed(secured: Secured, but: str = "", *, name: str = "") -> Application:
    """Make an application's user and topics, with records, and give it all rights but one."""
    name = name or name_of("app")
    application = Application(
        name, f"{name}-source", f"{name}-target", f"{name}-group", f"{name}-id"
    )
    admin = secured.admin
    make_user(admin, name)
    topics = [NewTopic(topic, 1, 1) for topic in (application.source, application.target)]
    bindings = [application.binding(right) for right in RIGHTS if right != but]
    for answers in (
        admin.create_topics(topics),
        admin.create_acls(bindings),
    ):
        for answer in answers.values():
            answer.result(DEADLINE_SECONDS)
    settings: dict[str, Any] = secured.librdkafka()
    writer = confluent.producer(secured.address, **settings)
    confluent.deliver(writer, application.source, VALUES)
    return application


def take_away(secured: Secured, application: Application, right: str) -> None:
    """Remove the entry that gives a right."""
    admin = secured.admin  # its answers are lost when it is dropped
    [removed] = admin.delete_acls([application.filter(right)]).values()
    assert len(removed.result(DEADLINE_SECONDS)) == 1
