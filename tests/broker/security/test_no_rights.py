"""A principal without rights: every API and version answers it, and no answer tells it a name."""

from dataclasses import fields, replace
from typing import Any, Final
from uuid import UUID

import pytest

from odradek.broker.api import APIS
from odradek.broker.api.context import RequestContext
from odradek.protocol.api import Api
from odradek.protocol.apis.client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlterEntryData,
    EntityData,
    OpData,
)
from odradek.protocol.apis.configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from odradek.protocol.apis.credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.protocol.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.apis.group import (
    DESCRIBE_GROUPS,
    JOIN_GROUP,
    LIST_GROUPS,
    DescribeGroupsRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    ListGroupsRequest,
)
from odradek.protocol.apis.group_offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.apis.topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from odradek.protocol.apis.transactions import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from odradek.protocol.apis.txn import (
    ADD_PARTITIONS_TO_TXN,
    INIT_PRODUCER_ID,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    InitProducerIdRequest,
)
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.schema import FieldType
from tests.broker.samples import sample
from tests.broker.security.secured import Asker, Secured, secured

HUSH: Final = "hush"
"""The name of the topic, the group and the transactional id."""
HUSH_OFFSETS: Final = "hush-offsets"
"""The name of a group with an offset."""
QUIET: Final = b"quiet"
"""What begins all that is known of their users."""


async def make_secrets(broker: Secured) -> tuple[UUID, Asker]:
    """Make a topic, a group with a member, offsets, settings, quotas, users, and a transaction.

    The transaction is open. A user of SCRAM has the name of the topic, and one another name.
    """
    owner = broker.connect("quiet-client")
    topic = CreatableTopic(
        name=HUSH, num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    made = await owner.ask(CREATE_TOPICS, 7, CreateTopicsRequest(topics=(topic,)))
    joined = await owner.ask(
        JOIN_GROUP,
        3,
        JoinGroupRequest(
            group_id=HUSH,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b"quiet-metadata"),),
        ),
    )
    assert joined.error_code == 0
    committed = await owner.ask(
        OFFSET_COMMIT,
        8,
        OffsetCommitRequest(
            group_id=HUSH_OFFSETS,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=(
                OffsetCommitRequestTopic(
                    name=HUSH,
                    partitions=(
                        OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=0, committed_metadata="quiet-note"
                        ),
                    ),
                ),
            ),
        ),
    )
    assert committed.topics[0].partitions[0].error_code == 0
    producer = await owner.ask(
        INIT_PRODUCER_ID,
        4,
        InitProducerIdRequest(transactional_id=HUSH, transaction_timeout_ms=60_000),
    )
    added = await owner.ask(
        ADD_PARTITIONS_TO_TXN,
        3,
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=HUSH,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=HUSH, partitions=(0,)),),
        ),
    )
    found = added.results_by_topic_v3_and_below[0].results_by_partition[0]
    assert found.partition_error_code == 0
    altered = await owner.ask(
        INCREMENTAL_ALTER_CONFIGS,
        1,
        IncrementalAlterConfigsRequest(
            validate_only=False,
            resources=(
                IncrementalAlterConfigsResource(
                    resource_type=32,
                    resource_name="hush-settings",
                    configs=(
                        AlterableConfig(
                            name="consumer.session.timeout.ms", config_operation=0, value="50000"
                        ),
                    ),
                ),
            ),
        ),
    )
    assert altered.responses[0].error_code == 0
    limited = await owner.ask(
        ALTER_CLIENT_QUOTAS,
        1,
        AlterClientQuotasRequest(
            entries=tuple(
                AlterEntryData(
                    entity=(EntityData(entity_type=kind, entity_name=f"quiet-{kind}"),),
                    ops=(OpData(key="producer_byte_rate", value=1e9, remove=False),),
                )
                for kind in ("user", "client-id")
            ),
            validate_only=False,
        ),
    )
    assert {each.error_code for each in limited.entries} == {0}
    users = await owner.ask(
        ALTER_USER_SCRAM_CREDENTIALS,
        0,
        AlterUserScramCredentialsRequest(
            deletions=(),
            upsertions=tuple(
                ScramCredentialUpsertion(
                    name=name,
                    mechanism=1,
                    iterations=4096,
                    salt=b"quiet-salt",
                    salted_password=b"quiet-password".ljust(32),
                )
                for name in (HUSH, "quiet-user")
            ),
        ),
    )
    assert [each.error_code for each in users.results] == [0, 0]
    return made.topics[0].topic_id, owner


def with_everything(message: Any, version: int, topic_id: UUID) -> Any:
    """Return a request that asks for all that there is, and for the topic by its id."""
    changed: dict[str, Any] = {}
    for declared in fields(message):
        kind: FieldType = declared.metadata["type"]
        if not kind.is_in(version):
            continue
        value = getattr(message, declared.name)
        if kind.kind == "uuid":
            changed[declared.name] = topic_id
        elif kind.kind == "array" and value and hasattr(value[0], "__dataclass_fields__"):
            changed[declared.name] = tuple(
                with_everything(each, version, topic_id) for each in value
            )
    return replace(message, **changed)


def with_names(message: Any, version: int) -> Any:
    """Return a request that names the topic, the group or the transactional id."""
    changed: dict[str, Any] = {}
    for declared in fields(message):
        kind: FieldType = declared.metadata["type"]
        if not kind.is_in(version):
            continue
        value = getattr(message, declared.name)
        if kind.kind == "string":
            changed[declared.name] = HUSH
        elif kind.kind == "array" and value and hasattr(value[0], "__dataclass_fields__"):
            changed[declared.name] = tuple(with_names(each, version) for each in value)
        elif kind.kind == "array" and value and isinstance(value[0], str):
            changed[declared.name] = (HUSH,)
    return replace(message, **changed)


def without_lists(message: Any, version: int) -> Any:
    """Return a request whose nullable lists and names are null, and other lists empty."""
    changed: dict[str, Any] = {}
    for declared in fields(message):
        kind: FieldType = declared.metadata["type"]
        if not kind.is_in(version):
            continue
        may_be_null = kind.nullable is not None and version >= kind.nullable
        if kind.kind == "array":
            changed[declared.name] = None if may_be_null else ()
        elif kind.kind == "string" and may_be_null:
            changed[declared.name] = None
    return replace(message, **changed)


@pytest.mark.parametrize("key", APIS, ids=lambda key: APIS[key].name)
async def test_no_answer_has_a_name_or_a_host(key: int) -> None:
    api: Api[Any, Any] = APIS[key]
    async with secured() as broker:
        topic_id, owner = await make_secrets(broker)
        private = [QUIET, owner.host.encode()]
        secrets = [HUSH.encode(), *private]
        broker.switch_on()
        for version in range(api.min_version, api.max_version + 1):
            whole = sample(api.request, version)
            for message, hidden in (
                (whole, secrets),
                (with_everything(whole, version, topic_id), secrets),
                (without_lists(whole, version), secrets),
                (with_names(whole, version), [topic_id.bytes, *private]),
            ):
                nobody = broker.connect()
                nobody.send(api, version, message)
                frame = await nobody.frame()
                if frame is None:
                    assert message is not whole, f"{api.name} {version} is not answered"
                    continue
                assert not [each for each in hidden if each in frame], (version, message)
                nobody.client.half_close()


async def write(owner: Asker) -> None:
    """Write a record to the topic with an idempotent producer."""
    made = await owner.ask(
        INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    )
    batch = encode_batch(
        [Record(key=None, value=b"v")],
        producer_id=made.producer_id,
        producer_epoch=made.producer_epoch,
        base_sequence=0,
    )
    data = PartitionProduceData(index=0, records=bytes(batch))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=(TopicProduceData(name=HUSH, partition_data=(data,)),),
    )
    written = await owner.ask(PRODUCE, 9, request)
    assert written.responses[0].partition_responses[0].error_code == 0


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The memory that answers wait for, as items and bytes."""
    counted: list[tuple[int, int]] = []

    async def expect(_context: RequestContext, items: int, *, extra_bytes: int = 0) -> None:
        counted.append((items, extra_bytes))

    monkeypatch.setattr(RequestContext, "expect", expect)
    return counted


REFUSED: Final = (
    (OFFSET_FETCH, 7, OffsetFetchRequest(group_id=HUSH_OFFSETS, topics=None)),
    (
        OFFSET_FETCH,
        8,
        OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=HUSH_OFFSETS, topics=None),)),
    ),
    (DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=(HUSH,))),
    (DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest(transactional_ids=(HUSH,))),
    (
        DESCRIBE_PRODUCERS,
        0,
        DescribeProducersRequest(
            topics=(DescribeProducersTopicRequest(name=HUSH, partition_indexes=(0,)),)
        ),
    ),
)


@pytest.mark.parametrize(
    ("api", "version", "wanted"), REFUSED, ids=[f"{api.name}-{v}" for api, v, _ in REFUSED]
)
async def test_the_memory_that_a_refusal_waits_for_does_not_show_what_is_stored(
    counts: list[tuple[int, int]], api: Api[Any, Any], version: int, wanted: Any
) -> None:
    """A large group closed the connection of a client that may not know of it, or delayed it."""
    async with secured() as broker:
        _, owner = await make_secrets(broker)
        await write(owner)
        counts.clear()
        await owner.ask(api, version, wanted)
        items = sum(count for count, _ in counts)
        assert items > 1, "there is something to hide"
        broker.switch_on()
        counts.clear()
        await broker.connect().ask(api, version, wanted)
        assert sum(count for count, _ in counts) == 1
        assert not any(extra_bytes for _, extra_bytes in counts)


LISTED: Final = (
    (LIST_GROUPS, 5, ListGroupsRequest()),
    (LIST_TRANSACTIONS, 2, ListTransactionsRequest(state_filters=(), producer_id_filters=())),
)


@pytest.mark.parametrize(
    ("api", "version", "wanted"), LISTED, ids=[each[0].name for each in LISTED]
)
async def test_the_memory_that_an_empty_list_waits_for_does_not_show_how_much_there_is(
    counts: list[tuple[int, int]], api: Api[Any, Any], version: int, wanted: Any
) -> None:
    async with secured() as broker:
        _, owner = await make_secrets(broker)
        counts.clear()
        await owner.ask(api, version, wanted)
        assert any(count for count, _ in counts), "there is something to hide"
        broker.switch_on()
        counts.clear()
        await broker.connect().ask(api, version, wanted)
        assert not any(count or extra_bytes for count, extra_bytes in counts)


async def test_records_are_not_fetched_by_the_id_of_a_topic() -> None:
    async with secured() as broker:
        topic_id, _ = await make_secrets(broker)
        broker.switch_on()
        nobody = broker.connect()
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            topics=(FetchTopic(topic_id=topic_id, partitions=(wanted,)),),
        )
        answer = await nobody.ask(FETCH, 17, request)
        assert answer.responses[0].partitions[0].error_code == 29
        assert not answer.responses[0].partitions[0].records
