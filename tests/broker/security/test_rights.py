"""The table of APIs: what each needs, and the code that refuses it."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final

import pytest

from odradek.broker.security.acls import CLUSTER_NAME, Permission, ResourceKind
from odradek.broker.security.rights import (
    ALTER_CLUSTER,
    ALTER_CLUSTER_CONFIGS,
    ALTER_TOPIC,
    CLUSTER_ACTION,
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DELETE_CLUSTER,
    DELETE_GROUP,
    DELETE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP,
    DESCRIBE_ID,
    DESCRIBE_TOPIC,
    IDEMPOTENT_WRITE,
    READ_GROUP,
    READ_TOPIC,
    WRITE_ID,
    WRITE_TOPIC,
    Right,
)
from odradek.protocol.api import Api
from tests.broker.samples import sample
from tests.broker.security.secured import secured
from tests.broker.security.test_no_rights import HUSH, make_secrets, with_names
from tests.protocol import declared

API: Final = {api.name: api for api in declared.APIS.values()}
TOPIC, GROUP, CLUSTER, ID = 29, 30, 31, 53

CASES: Final[list[tuple[str, int, dict[Right, int]]]] = [
    ("Produce", 9, {WRITE_TOPIC: TOPIC}),
    ("ListOffsets", 6, {DESCRIBE_TOPIC: TOPIC}),
    ("Metadata", 9, {DESCRIBE_TOPIC: TOPIC}),
    ("OffsetCommit", 8, {READ_GROUP: GROUP, READ_TOPIC: TOPIC}),
    ("OffsetFetch", 7, {DESCRIBE_GROUP: GROUP, DESCRIBE_TOPIC: TOPIC}),
    ("OffsetFetch", 8, {DESCRIBE_GROUP: GROUP, DESCRIBE_TOPIC: TOPIC}),
    ("FindCoordinator", 0, {DESCRIBE_GROUP: GROUP}),
    ("FindCoordinator", 3, {DESCRIBE_ID: ID}),
    ("JoinGroup", 5, {READ_GROUP: GROUP}),
    ("Heartbeat", 3, {READ_GROUP: GROUP}),
    ("LeaveGroup", 4, {READ_GROUP: GROUP}),
    ("SyncGroup", 5, {READ_GROUP: GROUP}),
    ("DescribeGroups", 5, {DESCRIBE_GROUP: GROUP}),
    ("DeleteGroups", 2, {DELETE_GROUP: GROUP}),
    ("OffsetDelete", 0, {DELETE_GROUP: GROUP, READ_TOPIC: TOPIC}),
    ("CreateTopics", 7, {CREATE_TOPIC: TOPIC}),
    ("CreateTopics", 7, {CREATE_CLUSTER: TOPIC}),
    ("DeleteTopics", 5, {DELETE_TOPIC: TOPIC}),
    ("DeleteTopics", 5, {DELETE_CLUSTER: TOPIC}),
    ("CreatePartitions", 3, {ALTER_TOPIC: TOPIC}),
    ("DeleteRecords", 2, {DELETE_TOPIC: TOPIC}),
    ("InitProducerId", 4, {WRITE_ID: ID}),
    ("AddPartitionsToTxn", 3, {WRITE_ID: ID, WRITE_TOPIC: TOPIC}),
    ("AddPartitionsToTxn", 4, {CLUSTER_ACTION: CLUSTER}),
    ("AddOffsetsToTxn", 3, {WRITE_ID: ID, READ_GROUP: GROUP}),
    ("EndTxn", 4, {WRITE_ID: ID}),
    ("TxnOffsetCommit", 3, {WRITE_ID: ID, READ_GROUP: GROUP, READ_TOPIC: TOPIC}),
    ("WriteTxnMarkers", 1, {ALTER_CLUSTER: CLUSTER}),
    ("WriteTxnMarkers", 1, {CLUSTER_ACTION: CLUSTER}),
    ("DescribeTransactions", 0, {DESCRIBE_ID: ID}),
    ("DescribeProducers", 0, {READ_TOPIC: TOPIC}),
    ("ConsumerGroupHeartbeat", 0, {READ_GROUP: GROUP, DESCRIBE_TOPIC: TOPIC}),
    ("ConsumerGroupDescribe", 1, {DESCRIBE_GROUP: GROUP}),
    ("ElectLeaders", 2, {ALTER_CLUSTER: CLUSTER}),
    ("AlterPartitionReassignments", 0, {ALTER_CLUSTER: CLUSTER}),
    ("ListPartitionReassignments", 0, {DESCRIBE_CLUSTER: CLUSTER}),
    ("DescribeClientQuotas", 1, {DESCRIBE_CLUSTER_CONFIGS: CLUSTER}),
    ("AlterClientQuotas", 1, {ALTER_CLUSTER_CONFIGS: CLUSTER}),
    ("DescribeQuorum", 2, {DESCRIBE_CLUSTER: CLUSTER}),
    ("UpdateFeatures", 1, {ALTER_CLUSTER: CLUSTER}),
    ("UnregisterBroker", 0, {ALTER_CLUSTER: CLUSTER}),
    ("DescribeAcls", 3, {DESCRIBE_CLUSTER: CLUSTER}),
    ("CreateAcls", 3, {ALTER_CLUSTER: CLUSTER}),
    ("DeleteAcls", 3, {ALTER_CLUSTER: CLUSTER}),
    ("DescribeLogDirs", 3, {DESCRIBE_CLUSTER: CLUSTER}),
    ("AlterReplicaLogDirs", 2, {ALTER_CLUSTER: CLUSTER}),
    ("DescribeUserScramCredentials", 0, {DESCRIBE_CLUSTER: CLUSTER}),
    ("ListConfigResources", 1, {DESCRIBE_CLUSTER_CONFIGS: CLUSTER}),
    ("DescribeConfigs", 4, {DESCRIBE_CLUSTER_CONFIGS: CLUSTER}),
]
"""An API in a version, and the rights that a request of it needs, with what refuses it without."""


def codes_in(answer: Any) -> Iterator[int]:
    """Yield every error code of an answer."""
    for declared_field in fields(answer):
        value = getattr(answer, declared_field.name)
        if declared_field.name.endswith("error_code"):
            yield value
        for each in value if isinstance(value, tuple) else ():
            if is_dataclass(each):
                yield from codes_in(each)


def name_of(right: Right) -> str:
    return CLUSTER_NAME if right.kind is ResourceKind.CLUSTER else HUSH


@pytest.mark.parametrize(
    ("name", "version", "needed"),
    CASES,
    ids=[f"{name}-{version}-{'-'.join(map(str, needed))}" for name, version, needed in CASES],
)
async def test_a_request_needs_each_of_its_rights(
    name: str, version: int, needed: dict[Right, int]
) -> None:
    api: Api[Any, Any] = API[name]
    message = with_names(sample(api.request, version), version)

    async def codes(permitted: set[Right], denied: set[Right] | None = None) -> set[int]:
        await broker.revoke_all()
        for right in permitted:
            await broker.permit(right, name_of(right))
        for right in denied or ():
            await broker.permit(right, "*", permission=Permission.DENY)
        client = broker.connect()
        answer = await client.ask(api, version, message)
        assert answer is not None
        client.client.half_close()
        return set(codes_in(answer))

    async with secured() as broker:
        await make_secrets(broker)
        broker.switch_on()
        everything = set(needed)
        refusals = set(needed.values())
        first = next(iter(needed.values()))
        assert first in await codes(set())
        for right, code in needed.items():
            assert code in await codes(everything - {right}), f"without {right}"
            if right.kind is not ResourceKind.CLUSTER:
                assert code in await codes(everything, {right}), f"{right} is denied"
        assert not refusals & await codes(everything)


async def test_a_producer_without_transactional_id_may_write_somewhere() -> None:
    init = API["InitProducerId"]
    request = init.request(transactional_id=None, transaction_timeout_ms=1_000)
    async with secured() as broker:
        broker.switch_on()
        assert (await broker.connect().ask(init, 4, request)).error_code == CLUSTER
        for right, name in ((WRITE_TOPIC, "some"), (IDEMPOTENT_WRITE, CLUSTER_NAME)):
            await broker.revoke_all()
            await broker.permit(right, name)
            assert (await broker.connect().ask(init, 4, request)).error_code == 0
        await broker.revoke_all()
        await broker.permit(WRITE_TOPIC, "some")
        await broker.permit(WRITE_TOPIC, "some", permission=Permission.DENY)
        assert (await broker.connect().ask(init, 4, request)).error_code == CLUSTER
