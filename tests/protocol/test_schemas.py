"""Every declaration compared with Kafka's published schemas, so that no misreading is hidden.

The schemas come with the kafka-python wheel. It lacks those of the state topics' records, which
stand here in a short form, and those of consumer groups (`group_schemas.py`).
"""

import copy
from collections.abc import Callable
from typing import Any, Final

import pytest

from odradek.protocol import state_topics
from odradek.protocol.api import Api
from odradek.protocol.apis.produce import ProduceResponse
from odradek.protocol.state_topics import (
    VALUE_VERSIONS,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionLogKey,
    TransactionLogValue,
)
from tests.protocol import group_schemas
from tests.protocol.declared import APIS, APIS_WITH_2PC
from tests.protocol.kafka_versions import KAFKA_4_3
from tests.protocol.published import differences, flexible_from, load_published, version_range

by_api = pytest.mark.parametrize("api", APIS_WITH_2PC.values(), ids=lambda api: api.name)


@by_api
def test_a_request_is_declared_as_published(api: Api[Any, Any]) -> None:
    schema = load_published(f"{api.name}Request")
    versions = range(api.min_version, api.max_version + 1)
    assert schema["apiKey"] == api.key
    assert flexible_from(schema) == api.flexible_from
    assert api.request.__name__ == schema["name"]
    assert differences(schema, api.request, versions) == []


@by_api
def test_a_response_is_declared_as_published(api: Api[Any, Any]) -> None:
    schema = load_published(f"{api.name}Response")
    versions = range(api.min_version, api.max_version + 1)
    assert schema["apiKey"] == api.key
    assert flexible_from(schema) == api.flexible_from
    assert api.response.__name__ == schema["name"]
    assert differences(schema, api.response, versions) == []


@by_api
def test_versions_are_those_that_kafka_serves(api: Api[Any, Any]) -> None:
    served = APIS[api.key]
    advertised_min = served.min_version if served.advertised_min is None else served.advertised_min
    assert (advertised_min, served.max_version) == KAFKA_4_3[api.key]
    request = load_published(f"{api.name}Request")
    first, last = version_range(request["validVersions"])
    is_last_unstable = request.get("latestVersionUnstable", False)
    assert (served.min_version, served.max_version) == (first, last - is_last_unstable)
    assert api.max_version == last


def test_every_api_is_found_under_its_own_key() -> None:
    assert set(APIS) <= set(KAFKA_4_3)
    assert all(api.key == key for key, api in APIS.items())


# ProduceResponse, with one change in each case.

Plant = Callable[[dict[str, Any]], None]


def partition_field(schema: dict[str, Any], name: str) -> dict[str, Any]:
    partitions = schema["fields"][0]["fields"][-1]["fields"]
    return next(field for field in partitions if field["name"] == name)


PLANTS: Final[dict[str, Plant]] = {
    "a name": lambda s: partition_field(s, "BaseOffset").update(name="BasisOffset"),
    "a type": lambda s: partition_field(s, "BaseOffset").update(type="int32"),
    "a first version": lambda s: partition_field(s, "LogStartOffset").update(versions="6+"),
    "a last version": lambda s: partition_field(s, "LogStartOffset").update(versions="5-12"),
    "nullability": lambda s: partition_field(s, "ErrorMessage").pop("nullableVersions"),
    "nullability since": lambda s: partition_field(s, "ErrorMessage").update(nullableVersions="9+"),
    "a number's default": lambda s: partition_field(s, "LogAppendTimeMs").update(default="0"),
    "a missing default": lambda s: partition_field(s, "LogAppendTimeMs").pop("default"),
    "a null default": lambda s: partition_field(s, "ErrorMessage").pop("default"),
    "a default of a required field": lambda s: partition_field(s, "Index").update(default="7"),
    "a default inside a struct": lambda s: partition_field(s, "CurrentLeader")["fields"][0].update(
        default="3"
    ),
    "a tag": lambda s: partition_field(s, "CurrentLeader").update(tag=1),
    "a tag taken away": lambda s: partition_field(s, "CurrentLeader").pop("taggedVersions"),
    "an array": lambda s: s["fields"][0].update(type="TopicProduceResponse"),
    "one field more": lambda s: s["fields"].insert(
        1, {"name": "Surprise", "type": "int8", "versions": "0+"}
    ),
    "one field less": lambda s: s["fields"].pop(1),
    "the order": lambda s: s["fields"][0]["fields"][-1]["fields"].reverse(),
}


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS.keys())
def test_the_comparison_finds_a_planted_difference(plant: Plant) -> None:
    schema = load_published("ProduceResponse")
    assert differences(schema, ProduceResponse, range(3, 14)) == []
    planted = copy.deepcopy(schema)
    plant(planted)
    assert differences(planted, ProduceResponse, range(3, 14)) != []


# The records of the state topics, as Kafka 4.3.1 publishes them.


def field(name: str, kind: str, versions: str = "0+", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "versions": versions, **more}


def tagged(name: str, kind: str, tag: int, since: str, **more: Any) -> dict[str, Any]:
    return field(name, kind, since, taggedVersions=since, tag=tag, **more)


MEMBER: Final = [
    field("memberId", "string"),
    field("groupInstanceId", "string", "3+", nullableVersions="3+", default="null"),
    field("clientId", "string"),
    field("clientHost", "string"),
    field("rebalanceTimeout", "int32", "1+", default=-1),
    field("sessionTimeout", "int32"),
    field("subscription", "bytes"),
    field("assignment", "bytes"),
]
PARTITIONS: Final = [field("topic", "string"), field("partitionIds", "[]int32")]
STATE_RECORDS: Final[dict[type[Any], tuple[list[dict[str, Any]], int]]] = {
    TransactionLogKey: ([field("transactionalId", "string")], 0),
    OffsetCommitKey: (
        [field("group", "string"), field("topic", "string"), field("partition", "int32")],
        0,
    ),
    GroupMetadataKey: ([field("group", "string")], 0),
    TransactionLogValue: (
        [
            field("producerId", "int64"),
            tagged("previousProducerId", "int64", 0, "1+", default=-1),
            tagged("nextProducerId", "int64", 1, "1+", default=-1),
            field("producerEpoch", "int16"),
            tagged("nextProducerEpoch", "int16", 3, "1+", default=-1),
            field("transactionTimeoutMs", "int32"),
            field("transactionStatus", "int8"),
            field(
                "transactionPartitions",
                "[]PartitionsSchema",
                nullableVersions="0+",
                fields=PARTITIONS,
            ),
            field("transactionLastUpdateTimestampMs", "int64"),
            field("transactionStartTimestampMs", "int64"),
            tagged("clientTransactionVersion", "int16", 2, "1+", default=0),
        ],
        1,
    ),
    OffsetCommitValue: (
        [
            field("offset", "int64"),
            field("leaderEpoch", "int32", "3+", default=-1),
            field("metadata", "string"),
            field("commitTimestamp", "int64"),
            field("expireTimestamp", "int64", "1", default=-1),
            tagged("topicId", "uuid", 0, "4+"),
        ],
        4,
    ),
    GroupMetadataValue: (
        [
            field("protocolType", "string"),
            field("generation", "int32"),
            field("protocol", "string", nullableVersions="0+"),
            field("leader", "string", nullableVersions="0+"),
            field("currentStateTimestamp", "int64", "2+", default=-1),
            field("members", "[]MemberMetadata", fields=MEMBER),
        ],
        4,
    ),
}


@pytest.mark.parametrize("name", group_schemas.RECORDS)
def test_a_record_of_a_consumer_group_is_declared_as_published(name: str) -> None:
    declared = getattr(state_topics, name)
    schema = {"name": name, "fields": group_schemas.RECORDS[name]}
    assert differences(schema, declared, [0]) == []
    if name.endswith("Value"):
        assert VALUE_VERSIONS[declared] == (0, 0, 0)


@pytest.mark.parametrize("cls", STATE_RECORDS, ids=lambda cls: cls.__name__)
def test_a_record_of_a_state_topic_is_declared_as_published(cls: type[Any]) -> None:
    declared, last = STATE_RECORDS[cls]
    schema = {"name": cls.__name__, "fields": declared}
    assert differences(schema, cls, range(last + 1)) == []
    if cls in VALUE_VERSIONS:
        assert VALUE_VERSIONS[cls][:2] == (last, last)
