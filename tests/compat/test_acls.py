"""Access control with foreign clients: confluent-kafka, kafka-python, and Kafka's own tool."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourcePatternFilter,
)
from kafka.admin import ResourceType as KafkaPythonResource

from odradek.broker.testing import RunningBroker
from odradek.client.blocking import Acl, Admin
from tests.client.live import name_of
from tests.compat.conftest import DEADLINE_SECONDS
from tests.compat.kafka_tool import KafkaTools
from tests.secured_broker import ANONYMOUS, HERE, secured_broker

ACLS_TOOL = "org.apache.kafka.tools.AclCommand"
ALICE = "User:alice"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker
        assert "Traceback" not in broker.log, broker.log


def of_topic(name: str, principal: str, operation: AclOperation) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        name,
        ResourcePatternType.LITERAL,
        principal,
        "*",
        operation,
        AclPermissionType.ALLOW,
    )


def test_confluent_creates_describes_and_deletes_entries(broker: RunningBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    topic = name_of("topic")
    bindings = [of_topic(topic, ALICE, each) for each in (AclOperation.READ, AclOperation.WRITE)]
    for answer in admin.create_acls(bindings).values():
        answer.result(DEADLINE_SECONDS)
    wanted = AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        None,  # type: ignore[arg-type]  # any principal
        None,  # type: ignore[arg-type]  # any host
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    found = admin.describe_acls(wanted).result(DEADLINE_SECONDS)
    assert sorted(found, key=str) == sorted(bindings, key=str)
    [deleted] = admin.delete_acls([wanted]).values()
    assert sorted(deleted.result(DEADLINE_SECONDS), key=str) == sorted(bindings, key=str)
    assert admin.describe_acls(wanted).result(DEADLINE_SECONDS) == []


def test_confluent_learns_why_an_entry_cannot_be(broker: RunningBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    wrong = AclBinding(
        ResourceType.BROKER,  # the cluster, in librdkafka's words
        "another-cluster",
        ResourcePatternType.LITERAL,
        ALICE,
        "*",
        AclOperation.ALTER,
        AclPermissionType.ALLOW,
    )
    [answer] = admin.create_acls([wrong]).values()
    with pytest.raises(KafkaException) as found:
        answer.result(DEADLINE_SECONDS)
    assert found.value.args[0].code() == KafkaError.INVALID_REQUEST
    assert "kafka-cluster" in found.value.args[0].str()


def test_confluent_is_refused_what_was_denied_while_it_works(broker: RunningBroker) -> None:
    topic, group = name_of("topic"), name_of("group")
    errors: list[KafkaError | None] = []

    def on_delivery(error: KafkaError | None, _: object) -> None:
        errors.append(error)

    with Admin(broker.address) as admin:
        admin.create_topic(topic, partitions=1)
        producer = Producer({"bootstrap.servers": broker.address})
        producer.produce(topic, b"v", on_delivery=on_delivery)
        producer.flush(DEADLINE_SECONDS)
        assert errors.pop() is None
        consumer = Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": group,
                "auto.offset.reset": "earliest",
            }
        )
        try:
            consumer.subscribe([topic])
            message = consumer.poll(DEADLINE_SECONDS)
            assert message is not None
            assert message.error() is None
            denial = Acl("topic", topic, ANONYMOUS, "all", "deny", HERE)
            admin.create_acls([denial])
            producer.produce(topic, b"v", on_delivery=on_delivery)
            producer.flush(DEADLINE_SECONDS)
            error = errors.pop()
            assert error is not None
            assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            message = consumer.poll(DEADLINE_SECONDS)
            assert message is not None
            error = message.error()
            assert error is not None
            assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        finally:
            consumer.close()
            producer.purge()
    assert f"denied: {ANONYMOUS} at {HERE} may not READ TOPIC {topic}" in broker.log


def test_kafka_python_creates_describes_and_deletes_entries(broker: RunningBroker) -> None:
    group = name_of("group")
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        acl = ACL(
            principal=ALICE,
            host="*",
            operation=ACLOperation.READ,
            permission_type=ACLPermissionType.ALLOW,
            resource_pattern=ResourcePattern(KafkaPythonResource.GROUP, group),
        )
        created = admin.create_acls([acl])
        assert created["succeeded"] == [acl], created
        wanted = ACLFilter(
            principal=ALICE,
            host=None,
            operation=ACLOperation.ANY,
            permission_type=ACLPermissionType.ANY,
            resource_pattern=ResourcePatternFilter(
                KafkaPythonResource.GROUP, group, ACLResourcePatternType.LITERAL
            ),
        )
        found, _ = admin.describe_acls(wanted)
        assert found == [acl]
        admin.delete_acls([wanted])
        found, _ = admin.describe_acls(wanted)
        assert found == []
    finally:
        admin.close()


@pytest.mark.peers
def test_kafkas_own_tool_adds_lists_and_removes_entries(
    broker: RunningBroker, kafka_tools: KafkaTools
) -> None:
    topic = name_of("topic")

    def said(*arguments: str) -> str:
        printed = kafka_tools.run(ACLS_TOOL, "--bootstrap-server", broker.address, *arguments)
        assert printed.status == 0, printed.text
        return printed.text

    said(
        *("--add", "--allow-principal", ALICE, "--producer", "--idempotent", "--topic", topic),
        *("--transactional-id", f"{topic}-id"),
    )
    said("--add", "--allow-principal", ALICE, "--consumer", "--topic", topic, "--group", topic)
    said(
        *("--add", "--deny-principal", "User:*", "--operation", "Read", "--topic", topic[:-1]),
        *("--resource-pattern-type", "prefixed", "--deny-host", "10.0.0.7"),
    )
    with Admin(broker.address) as admin:
        found = {
            (acl.resource, acl.name, acl.operation, acl.permission)
            for acl in admin.describe_acls(resource="topic", name=topic, pattern="match")
            if acl.principal != ANONYMOUS
        }
        assert found == {
            ("topic", topic, "write", "allow"),
            ("topic", topic, "describe", "allow"),
            ("topic", topic, "create", "allow"),
            ("topic", topic, "read", "allow"),
            ("topic", topic[:-1], "read", "deny"),
        }
        idempotent = admin.describe_acls(resource="cluster", principal=ALICE)
        assert [acl.operation for acl in idempotent] == ["idempotent_write"]
        of_id = admin.describe_acls(resource="transactional_id", principal=ALICE)
        assert {acl.operation for acl in of_id} == {"write", "describe"}
    listed = said("--list", "--topic", topic, "--resource-pattern-type", "match")
    assert "principal=User:alice, host=*, operation=READ, permissionType=ALLOW" in listed
    assert "principal=User:*, host=10.0.0.7, operation=READ, permissionType=DENY" in listed
    said("--remove", "--topic", topic, "--force")
    assert "operation=READ, permissionType=ALLOW" not in said("--list", "--topic", topic)
