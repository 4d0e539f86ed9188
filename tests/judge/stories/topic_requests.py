"""Requests about topics: created, grown, deleted by name and by id, described in pages."""

from typing import Any, Final
from uuid import UUID

from odradek.protocol.apis.topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequest,
    TopicCursor,
    TopicRequest,
)
from odradek.protocol.apis.topics import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from odradek.protocol.schema import ZERO_UUID
from tests.judge.administering import ask
from tests.judge.broker import Broker
from tests.judge.names import code_name
from tests.judge.story import variants

TIMEOUT_MS: Final = 60_000
SOMEBODYS_ID: Final = UUID(int=77)


def created(broker: Broker, *topics: CreatableTopic, version: int, only_checked: bool) -> None:
    def topic(found: Any) -> str:
        said = [broker.names.here(found.name), code_name(found.error_code)]
        said.append(f"{found.num_partitions}/{found.replication_factor}")
        said.append("id" if found.topic_id != ZERO_UUID else "no id")
        configs = {each.name: each for each in found.configs or ()}
        said.append("null" if found.configs is None else f"{bool(configs)}")
        for name in ("retention.ms", "cleanup.policy"):
            if name in configs:
                each = configs[name]
                flags = f"{each.read_only} {each.config_source} {each.is_sensitive}"
                said.append(f"{name}={each.value} {flags}")
        return " ".join(said)

    request = CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=only_checked)
    words = " ".join(
        f"{broker.names.here(each.name)!r} {each.num_partitions}/{each.replication_factor} "
        f"{[(a.partition_index, list(a.broker_ids)) for a in each.assignments]} "
        f"{[(c.name, c.value) for c in each.configs]}"
        for each in topics
    )
    what = f"create {words}" + " (only validated)" * only_checked
    ask(
        broker,
        what,
        CREATE_TOPICS,
        version,
        request,
        lambda response: " | ".join(sorted(map(topic, response.topics))),
    )


def new(
    broker: Broker,
    name: str,
    partitions: int = -1,
    replicas: int = -1,
    *assignments: tuple[int, tuple[int, ...]],
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=broker.names.on_wire(name),
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in assignments
        ),
        configs=tuple(
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ),
    )


@variants(version=range(2, 8), only_checked=(True, False))
def story_create(broker: Broker, version: int, only_checked: bool) -> None:
    def create(*topics: CreatableTopic) -> None:
        created(broker, *topics, version=version, only_checked=only_checked)

    create(new(broker, "a", 3, 1, retention_ms="7000"))
    create(new(broker, "a", 3, 1))
    create(new(broker, "b", 0, 1), new(broker, "c", -2, 1), new(broker, "d", 1, 0))
    create(new(broker, "b", 1, 2), new(broker, "c", 1, -2))
    create(new(broker, "b", 1, 1), new(broker, "b", 2, 1))
    create(new(broker, "b", 1, 1, nonsense="1"))
    create(new(broker, "b", 1, 1, retention_ms="many"))
    create(new(broker, "b", 1, 1, retention_ms=None))
    create(new(broker, "", 1, 1))
    create(new(broker, "a/b", 1, 1), new(broker, "x" * 250, 1, 1))
    create(new(broker, "e", -1, -1, (0, (1,)), (1, (1,))))
    create(new(broker, "f", 1, 1, (0, (1,))))
    create(new(broker, "f", -1, -1, (1, (1,))))
    create(new(broker, "f", -1, -1, (0, (2,))))
    create(new(broker, "f", -1, -1, (0, (1, 1))))
    create(new(broker, "f", -1, -1, (0, ())))
    create(new(broker, "f", -1, -1, (0, (1,)), (0, (1,))))
    create()


def delete_by_id(broker: Broker, *topics: tuple[str | None, UUID]) -> None:
    request = DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(name=name, topic_id=each) for name, each in topics),
        timeout_ms=TIMEOUT_MS,
    )
    words = " ".join(
        f"{broker.names.here(name)}/{broker.names.topic_id(each)}" for name, each in topics
    )
    ask(broker, f"delete {words}", DELETE_TOPICS, 6, request, _by_topic(broker))


def _by_topic(broker: Broker) -> Any:
    """Format each topic's answer, in the order of their names: a real Kafka shuffles them."""

    def answer(response: Any) -> str:
        return " | ".join(sorted(map(broker.names.describe, response.responses)))

    return answer


def story_delete_by_id(broker: Broker) -> None:
    for topic in ("t", "u", "v"):
        broker.topic(topic)
    ids = broker.names.topic_ids
    wire = broker.names.on_wire
    delete_by_id(broker, (None, SOMEBODYS_ID))
    delete_by_id(broker, (None, ZERO_UUID))
    delete_by_id(broker, (wire("u"), ids["u"]))
    delete_by_id(broker, (wire("never"), ZERO_UUID))
    delete_by_id(broker, (None, ids["u"]), (None, ids["u"]))
    delete_by_id(broker, (None, ids["u"]), (wire("u"), ZERO_UUID))
    delete_by_id(broker, (wire("u"), ZERO_UUID), (wire("u"), ZERO_UUID))
    delete_by_id(broker, (None, ids["t"]), (wire("v"), ZERO_UUID), (None, SOMEBODYS_ID))
    delete_by_id(broker)
    for topic in ("t", "v"):
        del broker.topics_made[topic]
        broker.wait_until_gone(topic, 0)
    delete_by_id(broker, (None, ids["t"]))


@variants(version=range(1, 6))
def story_delete_by_name(broker: Broker, version: int) -> None:
    broker.topic("t")
    for names in (("never",), ("",), ("a/b",), ("t", "t"), (), ("t", "never")):
        wire = tuple(map(broker.names.on_wire, names))
        request = DeleteTopicsRequest(topic_names=wire, timeout_ms=TIMEOUT_MS)
        what = f"delete {' '.join(names)}"
        ask(broker, what, DELETE_TOPICS, version, request, _by_topic(broker))
    broker.topics_made.pop("t")


@variants(version=range(4), only_checked=(True, False))
def story_create_partitions(broker: Broker, version: int, only_checked: bool) -> None:
    broker.topic("t", 2)
    wanted: list[tuple[str, int, list[tuple[int, ...]] | None]] = [
        ("t", 2, None),
        ("t", 1, None),
        ("t", 0, None),
        ("t", -1, None),
        ("never", 3, None),
        ("", 3, None),
        ("t", 4, [(1,)]),
        ("t", 3, [(2,)]),
        ("t", 3, [(1, 1)]),
        ("t", 3, [()]),
        ("t", 3, []),
        ("t", 3, [(1,)]),
        ("t", 5, None),
    ]
    for name, count, assignments in wanted:
        _grow(broker, [(name, count, assignments)], version, only_checked)
    _grow(broker, [("t", 6, None), ("t", 7, None)], version, only_checked)
    _grow(broker, [], version, only_checked)
    broker.topics_made.pop("t")


def _grow(
    broker: Broker,
    topics: list[tuple[str, int, list[tuple[int, ...]] | None]],
    version: int,
    only_checked: bool,
) -> None:
    request = CreatePartitionsRequest(
        topics=tuple(
            CreatePartitionsTopic(
                name=broker.names.on_wire(name),
                count=count,
                assignments=None
                if assignments is None
                else tuple(CreatePartitionsAssignment(broker_ids=ids) for ids in assignments),
            )
            for name, count, assignments in topics
        ),
        timeout_ms=TIMEOUT_MS,
        validate_only=only_checked,
    )
    what = f"grow {topics}" + " (only validated)" * only_checked
    ask(
        broker,
        what,
        CREATE_PARTITIONS,
        version,
        request,
        lambda response: " | ".join(sorted(map(broker.names.describe, response.results))),
    )


def story_topic_partitions(broker: Broker) -> None:
    broker.topic("t", 3)
    broker.topic("u", 2)
    _described(broker, ["u", "t"])
    _described(broker, ["never", "t", "", "a/b"])
    _described(broker, ["t", "t"])
    for limit in (1, 3, 4, 0, -1, 2_001):
        _described(broker, ["t", "u"], limit=limit)
    for cursor in (("t", 1), ("t", 3), ("t", 9), ("u", 0), ("never", 0), ("t", -1), ("a", 0)):
        _described(broker, ["t", "u"], limit=2, cursor=cursor)
    _described(broker, ["t", "never"], limit=1, cursor=("s", 0))


def _described(
    broker: Broker, names: list[str], *, limit: int = 2_000, cursor: tuple[str, int] | None = None
) -> None:
    request = DescribeTopicPartitionsRequest(
        topics=tuple(TopicRequest(name=broker.names.on_wire(name)) for name in names),
        response_partition_limit=limit,
        cursor=None
        if cursor is None
        else TopicCursor(topic_name=broker.names.on_wire(cursor[0]), partition_index=cursor[1]),
    )
    what = f"partitions of {' '.join(names)} limit {limit} from {cursor}"
    ask(broker, what, DESCRIBE_TOPIC_PARTITIONS, 0, request)
