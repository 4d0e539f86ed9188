"""Foreign clients over SASL_SSL, with exactly the rights that an exactly-once application needs.

Each right is taken away in turn, and the client must say which one it lacks: its library's own name
of the error. Kafka's tools manage the entries, and look at transactions, over the same listener.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.admin import AclBindingFilter as Filter

from odradek.broker.testing import RunningBroker, run_broker
from tests.certificates import Authority
from tests.client.live import name_of
from tests.compat import confluent
from tests.compat.agent import GIVEN
from tests.compat.agents import Agent, Client, Refused, java_command, python_command
from tests.compat.conftest import DEADLINE_SECONDS
from tests.compat.kafka_tool import TRANSACTIONS, KafkaTools
from tests.secured_broker import AUTHORIZER

ACLS: Final = "org.apache.kafka.tools.AclCommand"
APP: Final = "User:app"
PASSWORDS: Final = {"admin": "of the admin", "app": "of the app"}
LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
RECORDS: Final = 5


class SaslSslBroker(RunningBroker):
    listener = "SASL_SSL"


@dataclass(frozen=True, slots=True)
class Secured:
    """The broker, and how its users reach it."""

    broker: RunningBroker
    authority_file: str

    @property
    def address(self) -> str:
        return f"localhost:{self.broker.port}"

    def librdkafka(self, user: str) -> dict[str, Any]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.authority_file,
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
        }

    def java(self, user: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority_file,
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{LOGIN} username="{user}" password="{PASSWORDS[user]}";',
        }

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address, **self.librdkafka("admin")})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("certificates")
    authority = Authority(directory)
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    config = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin",
        "ssl.keystore.location": authority.signed("broker").both_file,
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{LOGIN} {users};",
        "group.initial.rebalance.delay.ms": "0",
    }
    with run_broker(config=config, kind=SaslSslBroker) as broker:
        yield Secured(broker, authority.file)
        assert "Traceback" not in broker.log, broker.log


@dataclass(frozen=True, slots=True)
class Application:
    """The names of one application, and the rights that it needs."""

    source: str
    target: str
    group: str
    transactional_id: str

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


RIGHTS: Final = tuple(Application("", "", "", "").rights)


def deployed(secured: Secured, but: str = "") -> Application:
    """Make an application's topics with records, and give it all rights but one."""
    name = name_of("app")
    application = Application(f"{name}-source", f"{name}-target", f"{name}-group", f"{name}-id")
    admin = secured.admin
    topics = [NewTopic(topic, 1, 1) for topic in (application.source, application.target)]
    for made in admin.create_topics(topics).values():
        made.result(DEADLINE_SECONDS)
    writer = confluent.producer(secured.address, **secured.librdkafka("admin"))
    confluent.deliver(writer, application.source, [b"%d" % n for n in range(RECORDS)])
    bindings = [
        AclBinding(
            kind,
            resource,
            ResourcePatternType.LITERAL,
            APP,
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for right, (kind, resource, operation) in application.rights.items()
        if right != but
    ]
    for answer in admin.create_acls(bindings).values():
        answer.result(DEADLINE_SECONDS)
    return application


@pytest.fixture(
    scope="module",
    params=["confluent", pytest.param("java", marks=pytest.mark.peers)],
)
def client(
    request: pytest.FixtureRequest, secured: Secured, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    """A client library, whose programs are the user app."""
    if request.param == "java":
        command, settings = java_command(tmp_path_factory.mktemp("java")), secured.java("app")
    else:
        command, settings = python_command("confluent"), secured.librdkafka("app")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(GIVEN, "\n".join(f"{name}={value}" for name, value in settings.items()))
        yield Client(request.param, command, 2)


ERRORS: Final[Mapping[str, tuple[str, str]]] = {
    "READ source": ("TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationException"),
    "WRITE target": ("TOPIC_AUTHORIZATION_FAILED", "TopicAuthorizationException"),
    "READ group": ("GROUP_AUTHORIZATION_FAILED", "GroupAuthorizationException"),
    "WRITE id": (
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "TransactionalIdAuthorizationException",
    ),
}
"""What librdkafka and Java call the refusals."""


def test_with_what_it_needs_an_application_copies_exactly_once(
    secured: Secured, client: Client
) -> None:
    application = deployed(secured)
    with client.running() as agent:
        agent.ask("relay", secured.address, *relay_words(application))
    settings = secured.librdkafka("admin")
    found = confluent.read(secured.address, application.target, count=RECORDS, **settings)
    assert confluent.values(found) == [b"%d" % n for n in range(RECORDS)]


def relay_words(application: Application) -> list[object]:
    names = (application.transactional_id, application.group, "instance")
    return [*names, application.source, application.target, RECORDS, 1]


def write_and_commit_offsets(agent: Agent, secured: Secured, application: Application) -> None:
    producer = agent.producer(secured.address, application.transactional_id)
    producer.begin()
    producer.send(application.target, "value")
    producer.send_offset(application.group, application.source, 0, 1)


@pytest.mark.parametrize("right", RIGHTS)
def test_without_a_right_an_application_learns_which(
    secured: Secured, client: Client, right: str
) -> None:
    application = deployed(secured, but=right)
    with client.running() as agent, pytest.raises(Refused) as refused:
        write_and_commit_offsets(agent, secured, application)
    if (client.name, right) == ("java", "READ source"):
        assert refused.value.kind == "KafkaException"  # its producer expects no such code there
        assert "Topic authorization failed" in str(refused.value)
    else:
        assert refused.value.kind == ERRORS[right][client.name == "java"]
    topic, committed = application.target, secured.librdkafka("admin")
    assert confluent.read(secured.address, topic, count=0, **committed) == []


@pytest.mark.parametrize("right", ["READ source", "READ group"])
def test_without_a_right_a_member_learns_which(
    secured: Secured, client: Client, right: str
) -> None:
    application = deployed(secured, but=right)
    with client.running() as agent, pytest.raises(Refused) as refused:
        agent.ask("relay", secured.address, *relay_words(application))
    assert refused.value.kind == ERRORS[right][client.name == "java"]


def test_a_right_that_is_taken_away_ends_a_relay(secured: Secured, client: Client) -> None:
    application = deployed(secured)
    with client.running() as agent:
        producer = agent.producer(secured.address, application.transactional_id)
        producer.write(application.target, "before")
        kind, name, operation = application.rights["WRITE target"]
        wanted = Filter(
            kind, name, ResourcePatternType.LITERAL, APP, "*", operation, AclPermissionType.ALLOW
        )
        admin = secured.admin
        [removed] = admin.delete_acls([wanted]).values()
        assert len(removed.result(DEADLINE_SECONDS)) == 1
        producer.begin()
        with pytest.raises(Refused) as refused:
            producer.send(application.target, "after")
        if client.name == "confluent":  # the record was not even sent, and the transaction says why
            assert refused.value.kind == "_PURGE_QUEUE"
            with pytest.raises(Refused) as refused:
                producer.commit()
    assert refused.value.kind == ERRORS["WRITE target"][client.name == "java"]


@pytest.mark.peers
def test_kafkas_tools_manage_entries_and_see_transactions(
    secured: Secured, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    properties = tmp_path / "client.properties"
    settings = secured.java("admin")
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    topic = name_of("topic")

    def said(tool: str, *words: str) -> str:
        option = "--command-config"
        printed = kafka_tools.run(
            tool, "--bootstrap-server", secured.address, option, properties, *words
        )
        assert printed.status == 0, printed.text
        return printed.text

    of_app = ("--add", "--allow-principal", APP, "--topic", topic)
    said(ACLS, *of_app, "--producer", "--idempotent", "--transactional-id", f"{topic}-id")
    said(ACLS, *of_app, "--consumer", "--group", f"{topic}-group")
    admin = secured.admin
    for made in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        made.result(DEADLINE_SECONDS)
    listed = said(ACLS, "--list", "--topic", topic, "--resource-pattern-type", "match")
    for operation in ("WRITE", "READ", "DESCRIBE", "CREATE"):
        assert f"principal={APP}, host=*, operation={operation}, permissionType=ALLOW" in listed
    producer = confluent.transactional(secured.address, f"{topic}-id", **secured.librdkafka("app"))
    producer.begin_transaction()
    confluent.deliver(producer, topic, [b"value"])
    described = said(TRANSACTIONS, "describe", "--transactional-id", f"{topic}-id")
    assert "Ongoing" in described
    producer.commit_transaction()
    assert f"{topic}-id" in said(TRANSACTIONS, "list")
    said(ACLS, "--remove", "--topic", topic, "--force")
    assert "operation=WRITE" not in said(ACLS, "--list", "--topic", topic)
