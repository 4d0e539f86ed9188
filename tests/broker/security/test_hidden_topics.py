"""Topics that a client may not see, where it asks for something else."""

from typing import Any
from uuid import UUID

from odradek.broker.security.acls import AclFilter
from odradek.broker.security.rights import (
    ALTER_TOPIC_CONFIGS,
    CREATE_TOPIC,
    DELETE_TOPIC,
    DESCRIBE_GROUP,
    DESCRIBE_ID,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    READ_GROUP,
    READ_TOPIC,
    TWO_PHASE_COMMIT,
    WRITE_ID,
    WRITE_TOPIC,
)
from odradek.protocol.apis.configs import (
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from odradek.protocol.apis.group_consumer import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from odradek.protocol.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.apis.topic_partitions import (
    DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from odradek.protocol.apis.topics import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from odradek.protocol.apis.transactions import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    DescribeTransactionsRequest,
)
from odradek.protocol.apis.txn import (
    ADD_PARTITIONS_TO_TXN,
    INIT_PRODUCER_ID,
    INIT_PRODUCER_ID_2PC,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    InitProducerIdRequest,
)
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.schema import ZERO_UUID
from tests.broker.security.secured import Asker, Secured, secured

TOPIC_REFUSED, GROUP_REFUSED, ID_REFUSED = 29, 30, 53
MEMBER: str = str(UUID(int=5))


def topic_of(name: str) -> CreatableTopic:
    return CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
    )


async def make_topics(broker: Secured, *names: str) -> dict[str, UUID]:
    request = CreateTopicsRequest(topics=tuple(map(topic_of, names)))
    made = await broker.connect().ask(CREATE_TOPICS, 7, request)
    return {topic.name: topic.topic_id for topic in made.topics}


async def join(asker: Asker, *, epoch: int = 0, regex: str | None, names: Any = None) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=MEMBER,
        member_epoch=epoch,
        rebalance_timeout_ms=10_000 if epoch == 0 else -1,
        subscribed_topic_regex=regex,
        subscribed_topic_names=names,
        topic_partitions=() if epoch == 0 else None,
    )
    return await asker.ask(CONSUMER_GROUP_HEARTBEAT, 1, request)


def assigned(answer: Any) -> set[UUID]:
    return {each.topic_id for each in answer.assignment.topic_partitions}


async def test_a_pattern_matches_only_what_the_member_may_see() -> None:
    async with secured(group_consumer_assignment_interval_ms="0") as broker:
        ids = await make_topics(broker, "t-open", "t-shut")
        await broker.permit(READ_GROUP, "g")
        await broker.permit(DESCRIBE_TOPIC, "t-open")
        await broker.permit(DESCRIBE_TOPIC, "t-later")
        broker.switch_on()
        member = broker.connect()
        joined = await join(member, regex="t-.*")
        assert joined.error_code == 0
        assert assigned(joined) == {ids["t-open"]}
        broker.core.authorizer.is_on = False
        ids |= await make_topics(broker, "t-later", "t-hidden")
        broker.core.authorizer.is_on = True
        beaten = await join(member, epoch=joined.member_epoch, regex=None)
        assert assigned(beaten) == {ids["t-open"], ids["t-later"]}


async def test_a_pattern_is_matched_anew_when_rights_change() -> None:
    """A topic that a member was allowed later never came to it, and one taken away stayed."""
    async with secured(group_consumer_assignment_interval_ms="0") as broker:
        ids = await make_topics(broker, "t-one", "t-two")
        await broker.permit(READ_GROUP, "g")
        await broker.permit(DESCRIBE_TOPIC, "t-one")
        broker.switch_on()
        member = broker.connect()
        joined = await join(member, regex="t-.*")
        assert assigned(joined) == {ids["t-one"]}
        await broker.permit(DESCRIBE_TOPIC, "t-two")
        beaten = await join(member, epoch=joined.member_epoch, regex=None)
        assert assigned(beaten) == set(ids.values())
        await broker.core.acls.delete([AclFilter(name="t-one")])
        beaten = await join(member, epoch=beaten.member_epoch, regex=None)
        assert assigned(beaten) == {ids["t-two"]}


async def test_a_group_with_a_hidden_topic_shows_no_members() -> None:
    async with secured() as broker:
        await make_topics(broker, "t", "u")
        assert (await join(broker.connect(), regex=None, names=("t", "u"))).error_code == 0
        await broker.permit(DESCRIBE_GROUP, "g")
        await broker.permit(DESCRIBE_TOPIC, "t")
        broker.switch_on()
        request = ConsumerGroupDescribeRequest(group_ids=("g",), include_authorized_operations=True)
        [group] = (await broker.connect().ask(CONSUMER_GROUP_DESCRIBE, 1, request)).groups
        assert (group.error_code, group.members) == (TOPIC_REFUSED, ())
        await broker.permit(DESCRIBE_TOPIC, "u")
        [group] = (await broker.connect().ask(CONSUMER_GROUP_DESCRIBE, 1, request)).groups
        assert group.error_code == 0
        assert len(group.members) == 1
        assert group.authorized_operations == 1 << DESCRIBE_GROUP.operation


async def test_metadata_lists_what_may_be_seen_and_says_what_may_be_done() -> None:
    async with secured(auto_create_topics_enable="true") as broker:
        ids = await make_topics(broker, "t", "u")
        await broker.permit(READ_TOPIC, "t")
        await broker.permit(DESCRIBE_TOPIC, "new")
        broker.switch_on()
        asker = broker.connect()
        everything = MetadataRequest(
            topics=None,
            allow_auto_topic_creation=True,
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        answer = await asker.ask(METADATA, 9, everything)
        [topic] = answer.topics
        expected = 1 << READ_TOPIC.operation | 1 << DESCRIBE_TOPIC.operation
        assert (topic.name, topic.topic_authorized_operations) == ("t", expected)
        assert answer.cluster_authorized_operations == 0
        wanted = tuple(MetadataRequestTopic(name=name) for name in ("u", "is-not-there", "new"))
        named = await asker.ask(
            METADATA, 10, MetadataRequest(topics=wanted, allow_auto_topic_creation=True)
        )
        found = [(each.name, each.error_code, each.topic_id) for each in named.topics]
        assert found == [(each.name, TOPIC_REFUSED, ZERO_UUID) for each in wanted]
        assert "new" not in broker.core.cluster.image.topics
        await broker.permit(CREATE_TOPIC, "new")
        named = await asker.ask(
            METADATA, 9, MetadataRequest(topics=wanted[2:], allow_auto_topic_creation=True)
        )
        assert named.topics[0].error_code == 0
        by_id = MetadataRequest(topics=(MetadataRequestTopic(topic_id=ids["u"], name=None),))
        [refused] = (await asker.ask(METADATA, 12, by_id)).topics
        assert (refused.error_code, refused.name) == (TOPIC_REFUSED, None)


async def test_described_topics_are_those_that_may_be_seen() -> None:
    async with secured() as broker:
        await make_topics(broker, "t", "u")
        await broker.permit(DESCRIBE_TOPIC, "t")
        broker.switch_on()
        asker = broker.connect()

        async def described(*names: str) -> dict[str, int]:
            request = DescribeTopicPartitionsRequest(
                topics=tuple(TopicRequest(name=name) for name in names),
                response_partition_limit=100,
                cursor=None,
            )
            answer = await asker.ask(DESCRIBE_TOPIC_PARTITIONS, 0, request)
            return {topic.name: topic.error_code for topic in answer.topics}

        assert await described() == {"t": 0}
        assert await described("t", "u", "v") == {"t": 0, "u": TOPIC_REFUSED, "v": TOPIC_REFUSED}


async def test_a_topic_is_deleted_by_its_id_without_its_name_being_told() -> None:
    async with secured() as broker:
        ids = await make_topics(broker, "t")
        broker.switch_on()

        async def delete() -> Any:
            wanted = DeleteTopicState(name=None, topic_id=ids["t"])
            request = DeleteTopicsRequest(topics=(wanted,), timeout_ms=1_000)
            return (await broker.connect().ask(DELETE_TOPICS, 6, request)).responses[0]

        refused = await delete()
        assert (refused.error_code, refused.name) == (TOPIC_REFUSED, None)
        await broker.permit(DESCRIBE_TOPIC, "t")
        refused = await delete()
        assert (refused.error_code, refused.name) == (TOPIC_REFUSED, "t")
        await broker.permit(DELETE_TOPIC, "t")
        assert (await delete()).error_code == 0


async def test_a_new_topic_shows_its_settings_to_whom_may_see_them() -> None:
    async with secured() as broker:
        await broker.permit(CREATE_TOPIC, "*")
        await broker.permit(DESCRIBE_TOPIC_CONFIGS, "u")
        broker.switch_on()
        request = CreateTopicsRequest(topics=(topic_of("t"), topic_of("u")))
        hidden, shown = (await broker.connect().ask(CREATE_TOPICS, 7, request)).topics
        assert (hidden.error_code, hidden.topic_config_error_code) == (0, TOPIC_REFUSED)
        assert not hidden.configs
        assert shown.topic_config_error_code == 0
        assert shown.configs


async def test_settings_of_topics_and_groups_need_their_own_rights() -> None:
    async with secured() as broker:
        await make_topics(broker, "t")
        await broker.permit(DESCRIBE_TOPIC_CONFIGS, "t")
        broker.switch_on()
        asker = broker.connect()
        described = DescribeConfigsRequest(
            resources=tuple(
                DescribeConfigsResource(
                    resource_type=kind, resource_name="t", configuration_keys=None
                )
                for kind in (2, 32, 4)
            )
        )
        answer = await asker.ask(DESCRIBE_CONFIGS, 4, described)
        assert [each.error_code for each in answer.results] == [0, GROUP_REFUSED, 31]
        altered = IncrementalAlterConfigsRequest(
            validate_only=False,
            resources=tuple(
                IncrementalAlterConfigsResource(resource_type=kind, resource_name="t", configs=())
                for kind in (2, 32)
            ),
        )
        answer = await asker.ask(INCREMENTAL_ALTER_CONFIGS, 1, altered)
        assert [each.error_code for each in answer.responses] == [TOPIC_REFUSED, GROUP_REFUSED]
        await broker.permit(ALTER_TOPIC_CONFIGS, "t")
        answer = await asker.ask(INCREMENTAL_ALTER_CONFIGS, 1, altered)
        assert [each.error_code for each in answer.responses] == [0, GROUP_REFUSED]


async def test_a_transaction_shows_neither_hidden_topics_nor_its_id_to_readers() -> None:
    async with secured() as broker:
        await make_topics(broker, "t", "u")
        owner = broker.connect("owner")
        begun = await owner.ask(
            INIT_PRODUCER_ID,
            4,
            InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000),
        )
        topics = tuple(AddPartitionsToTxnTopic(name=name, partitions=(0,)) for name in ("t", "u"))
        await owner.ask(
            ADD_PARTITIONS_TO_TXN,
            3,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x",
                v3_and_below_producer_id=begun.producer_id,
                v3_and_below_producer_epoch=begun.producer_epoch,
                v3_and_below_topics=topics,
            ),
        )
        batch = encode_batch(
            [Record(key=None, value=b"v")],
            producer_id=begun.producer_id,
            producer_epoch=begun.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        produce = ProduceRequest(
            transactional_id="x",
            acks=-1,
            timeout_ms=10_000,
            topic_data=(
                TopicProduceData(
                    name="t",
                    partition_data=(PartitionProduceData(index=0, records=bytes(batch)),),
                ),
            ),
        )
        written = await owner.ask(PRODUCE, 9, produce)
        assert written.responses[0].partition_responses[0].error_code == 0
        for right, name in ((READ_TOPIC, "t"), (WRITE_TOPIC, "t")):
            await broker.permit(right, name)
        broker.switch_on()
        asker = broker.connect()
        # a transactional batch needs the id besides
        refused = await asker.ask(PRODUCE, 9, produce)
        assert refused.responses[0].partition_responses[0].error_code == ID_REFUSED
        producers = DescribeProducersRequest(
            topics=(DescribeProducersTopicRequest(name="t", partition_indexes=(0,)),)
        )

        async def producer() -> Any:
            answer = await asker.ask(DESCRIBE_PRODUCERS, 0, producers)
            return answer.topics[0].partitions[0].active_producers[0]

        found = await producer()
        assert found.producer_id == begun.producer_id
        assert (found.transactional_id, found.client_id, found.client_host) == (None, None, None)
        await broker.permit(DESCRIBE_ID, "x")
        assert (await producer()).transactional_id == "x"
        transactions = DescribeTransactionsRequest(transactional_ids=("x",))
        answer = await asker.ask(DESCRIBE_TRANSACTIONS, 0, transactions)
        [state] = answer.transaction_states
        assert [topic.topic for topic in state.topics] == ["t"]


async def test_two_phase_commit_needs_a_right_of_its_own() -> None:
    async with secured(transaction_two_phase_commit_enable="true") as broker:
        await broker.permit(WRITE_ID, "x")
        broker.switch_on()
        asker = broker.connect()
        request = InitProducerIdRequest(
            transactional_id="x", transaction_timeout_ms=60_000, enable2_pc=True
        )
        assert (await asker.ask(INIT_PRODUCER_ID_2PC, 6, request)).error_code == ID_REFUSED
        await broker.permit(TWO_PHASE_COMMIT, "x")
        assert (await asker.ask(INIT_PRODUCER_ID_2PC, 6, request)).error_code == 0
