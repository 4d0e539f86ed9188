"""Kafka's command line tools over SASL_SSL, with exactly the rights that each command needs.

An operator who is no super user runs them. Each right is taken away in turn, and the tool must say
which one it lacks.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.client.live import name_of
from tests.cluster.test_network import wait_until
from tests.compat import confluent
from tests.compat.conftest import DEADLINE_SECONDS
from tests.compat.kafka_tool import TRANSACTIONS, KafkaTools, Printed
from tests.compat.least_rights import (
    VALUES,
    Application,
    Secured,
    deployed,
    make_user,
    run_secured,
)

pytestmark = pytest.mark.peers

ACLS: Final = "org.apache.kafka.tools.AclCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CLUSTER: Final = "kafka-cluster"
SERVER: Final = "--bootstrap-server"


@dataclass(frozen=True, slots=True)
class Right:
    """A right of an operator: on the cluster, or on something of an application."""

    kind: ResourceType
    operation: AclOperation
    error: str
    """What a tool prints without it; with nothing here, it leaves out what it would print."""
    field: str = ""

    def binding(self, operator: str, application: Application) -> AclBinding:
        name = getattr(application, self.field) if self.field else CLUSTER
        pattern, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        principal = f"User:{operator}"
        return AclBinding(self.kind, name, pattern, principal, "*", self.operation, allow)


def of_cluster(operation: AclOperation) -> Right:
    return Right(ResourceType.BROKER, operation, "ClusterAuthorizationException")


DESCRIBE_GROUP: Final = Right(
    ResourceType.GROUP, AclOperation.DESCRIBE, "GroupAuthorizationException", "group"
)
READ_GROUP: Final = Right(
    ResourceType.GROUP, AclOperation.READ, "GroupAuthorizationException", "group"
)
DESCRIBE_SOURCE: Final = Right(ResourceType.TOPIC, AclOperation.DESCRIBE, "", "source")
READ_SOURCE: Final = Right(
    ResourceType.TOPIC, AclOperation.READ, "TopicAuthorizationException", "source"
)
READ_TARGET: Final = Right(
    ResourceType.TOPIC, AclOperation.READ, "due to topic authorization failure", "target"
)
ALTER_CLUSTER: Final = Right(
    ResourceType.BROKER, AclOperation.ALTER, "due to cluster authorization error"
)
WRITE_ID: Final = Right(
    ResourceType.TRANSACTIONAL_ID,
    AclOperation.WRITE,
    "failed due to authorization failure",
    "transactional_id",
)
LISTED_ID: Final = Right(
    ResourceType.TRANSACTIONAL_ID, AclOperation.DESCRIBE, "", "transactional_id"
)
DESCRIBE_ID: Final = Right(
    ResourceType.TRANSACTIONAL_ID,
    AclOperation.DESCRIBE,
    "failed due to authorization failure",
    "transactional_id",
)


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a tool, what it prints if it may, and the rights that it needs."""

    tool: str
    words: str
    """USER, SOURCE, TARGET, GROUP and ID stand for the names of the application."""
    printed: str
    rights: Sequence[Right]


def spelled(words: str, application: Application) -> str:
    """Return words with the names of an application."""
    names = {
        "USER": application.user,
        "SOURCE": application.source,
        "TARGET": application.target,
        "GROUP": application.group,
        "ID": application.transactional_id,
    }
    return re.sub(rf"\b({'|'.join(names)})\b", lambda found: names[found[0]], words)


COMMANDS: Final = {
    "kafka-acls --add --producer": Command(
        ACLS,
        "--add --allow-principal User:USER --topic SOURCE --producer --idempotent"
        " --transactional-id ID",
        "operation=WRITE, permissionType=ALLOW",
        [of_cluster(AclOperation.ALTER)],
    ),
    "kafka-acls --add --consumer": Command(
        ACLS,
        "--add --allow-principal User:USER --topic SOURCE --consumer --group GROUP",
        "operation=READ, permissionType=ALLOW",
        [of_cluster(AclOperation.ALTER)],
    ),
    "kafka-acls --list": Command(
        ACLS,
        "--list --topic SOURCE --resource-pattern-type match",
        "operation=READ, permissionType=ALLOW",
        [of_cluster(AclOperation.DESCRIBE)],
    ),
    "kafka-configs: a user": Command(
        CONFIGS,
        "--alter --entity-type users --entity-name USER"
        " --add-config SCRAM-SHA-512=[iterations=4096,password=another]",
        "Completed updating config for user",
        [of_cluster(AclOperation.ALTER)],
    ),
    "kafka-configs: a quota": Command(
        CONFIGS,
        "--alter --entity-type users --entity-name USER --add-config producer_byte_rate=1048576",
        "Completed updating config for user",
        [of_cluster(AclOperation.ALTER_CONFIGS)],
    ),
    "kafka-configs: what a user has": Command(
        CONFIGS,
        "--describe --entity-type users --entity-name USER",
        "SCRAM credential configs for user-principal",
        [of_cluster(AclOperation.DESCRIBE), of_cluster(AclOperation.DESCRIBE_CONFIGS)],
    ),
    "kafka-transactions describe": Command(
        TRANSACTIONS,
        "describe --transactional-id ID",
        "Ongoing",
        [DESCRIBE_ID],
    ),
    "kafka-transactions list": Command(TRANSACTIONS, "list", "ID", [LISTED_ID]),
    "kafka-transactions describe-producers": Command(
        TRANSACTIONS,
        "describe-producers --topic TARGET --partition 0",
        "CurrentTransactionStartOffset",
        [READ_TARGET],
    ),
    "kafka-consumer-groups --describe": Command(
        GROUPS,
        "--describe --group GROUP",
        "SOURCE",
        [DESCRIBE_GROUP, DESCRIBE_SOURCE],
    ),
    "kafka-consumer-groups --reset-offsets": Command(
        GROUPS,
        "--reset-offsets --group GROUP --topic SOURCE --to-earliest --execute",
        "SOURCE",
        [READ_GROUP, READ_SOURCE],
    ),
}
"""What operators do, and what it takes."""
REMOVE: Final = Command(
    ACLS,
    "--remove --allow-principal User:USER --operation Read --topic SOURCE --force",
    "",
    [of_cluster(AclOperation.ALTER)],
)

ENDS: Final = {
    "abort": Command(
        TRANSACTIONS,
        "abort --topic TARGET --partition 0 --start-offset 0",
        "",
        [READ_TARGET, ALTER_CLUSTER],
    ),
    "forceTerminateTransaction": Command(
        TRANSACTIONS, "forceTerminateTransaction --transactionalId ID", "", [WRITE_ID]
    ),
}
"""The commands of kafka-transactions that end a transaction."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with run_secured(tmp_path_factory.mktemp("certificates")) as running:
        yield running


@pytest.fixture(scope="module")
def application(secured: Secured) -> Iterator[Application]:
    """An application that has stored an offset and has a transaction open."""
    made = deployed(secured)
    settings: dict[str, Any] = secured.librdkafka(made.user)
    with confluent.consumer(secured.address, made.group, **settings) as member:
        member.subscribe([made.source])
        confluent.poll_until(lambda: member.assignment() != [], member)
        member.commit(offsets=[TopicPartition(made.source, 0, 1)], asynchronous=False)
    producer = confluent.transactional(secured.address, made.transactional_id, **settings)
    producer.begin_transaction()
    confluent.deliver(producer, made.target, VALUES[:1])
    yield made
    producer.abort_transaction()


def run(
    tools: KafkaTools,
    secured: Secured,
    directory: Path,
    application: Application,
    command: Command,
    missing: Right | None = None,
) -> Printed:
    """Run a command as an operator of its own, with all rights that it needs but one."""
    operator = name_of("operator")
    admin = secured.admin
    make_user(admin, operator)
    given = [each.binding(operator, application) for each in command.rights if each is not missing]
    if given:
        for answer in admin.create_acls(given).values():
            answer.result(DEADLINE_SECONDS)
    properties = directory / "client.properties"
    settings = secured.java(operator)
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    words = spelled(command.words, application).split()
    option = ("--command-config", properties)
    return tools.run(command.tool, SERVER, secured.address, *option, *words)


@pytest.mark.parametrize("name", COMMANDS)
def test_with_what_it_needs_a_tool_does_its_work(
    kafka_tools: KafkaTools,
    secured: Secured,
    application: Application,
    tmp_path: Path,
    name: str,
) -> None:
    command = COMMANDS[name]
    done = run(kafka_tools, secured, tmp_path, application, command)
    assert done.status == 0, done.text
    assert "Exception" not in done.text, done.text
    assert spelled(command.printed, application) in done.text


@pytest.mark.parametrize(
    ("name", "index"),
    [(name, index) for name, each in COMMANDS.items() for index in range(len(each.rights))],
)
def test_without_a_right_a_tool_says_which(
    kafka_tools: KafkaTools,
    secured: Secured,
    application: Application,
    tmp_path: Path,
    name: str,
    index: int,
) -> None:
    command = COMMANDS[name]
    missing = command.rights[index]
    refused = run(kafka_tools, secured, tmp_path, application, command, missing)
    if missing.error:
        assert missing.error in refused.text, (refused.status, refused.text)
    else:
        assert spelled(command.printed, application) not in refused.text


def test_kafka_acls_removes_an_entry_only_with_the_right(
    kafka_tools: KafkaTools, secured: Secured, tmp_path: Path
) -> None:
    made = deployed(secured)
    admin = secured.admin

    def entries() -> int:
        return len(admin.describe_acls(made.filter("READ source")).result(DEADLINE_SECONDS))

    refused = run(kafka_tools, secured, tmp_path, made, REMOVE, REMOVE.rights[0])
    assert REMOVE.rights[0].error in refused.text
    assert entries() == 1
    done = run(kafka_tools, secured, tmp_path, made, REMOVE)
    assert (done.status, entries()) == (0, 0), done.text


@pytest.mark.parametrize("name", ENDS)
def test_kafka_transactions_ends_a_transaction_only_with_each_right(
    kafka_tools: KafkaTools, secured: Secured, tmp_path: Path, name: str
) -> None:
    made, command = deployed(secured), ENDS[name]
    settings: dict[str, Any] = secured.librdkafka(made.user)
    producer = confluent.transactional(secured.address, made.transactional_id, **settings)
    producer.begin_transaction()
    confluent.deliver(producer, made.target, VALUES[:1])

    def last_stable_offset() -> int:
        reads: dict[str, Any] = secured.librdkafka()
        with confluent.consumer(secured.address, **reads) as reader:
            place = TopicPartition(made.target, 0)
            _, stable = reader.get_watermark_offsets(place, timeout=DEADLINE_SECONDS)
            return int(stable)

    for missing in command.rights:
        refused = run(kafka_tools, secured, tmp_path, made, command, missing)
        assert missing.error in refused.text, (refused.status, refused.text)
        assert last_stable_offset() == 0
    done = run(kafka_tools, secured, tmp_path, made, command)
    assert done.status == 0, done.text
    wait_until(lambda: last_stable_offset() == 2)
