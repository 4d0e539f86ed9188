"""A broker whose clients have quotas: what is counted, what is answered, who waits."""

from typing import Any, Final

import pytest
import trio
import trio.testing

from odradek.broker.api import APIS
from odradek.broker.cluster.quota_keys import pack_values, quota_key
from odradek.broker.quotas.accounts import WAIT_MAX_SECONDS
from odradek.broker.quotas.entities import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    LEAST,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    Entity,
)
from odradek.broker.quotas.throttle import NOT_THROTTLED, Throttle
from odradek.broker.server import server as server_module
from odradek.protocol.api import Api
from odradek.protocol.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.apis.topics import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsRequest
from odradek.protocol.connection import Request, ServerProtocol
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.wire import Cursor
from tests.broker.samples import sample
from tests.broker.security.secured import Asker, Secured, secured
from tests.fakes.meta_store import FakeMetaStore

ANYBODY: Final[Entity] = ((USER, "ANONYMOUS"),)
APP: Final[Entity] = ((CLIENT_ID, "app"),)
THROTTLED: Final = ErrorCode.THROTTLING_QUOTA_EXCEEDED
BATCH_BYTES: Final = 2_000
WITHOUT_PLACE: Final = {17, 27, 36, 55}
"""SaslHandshake, WriteTxnMarkers, SaslAuthenticate and DescribeQuorum have no throttle time."""


async def set_quota(broker: Secured, entity: Entity, **kinds: float | None) -> None:
    await broker.core.quotas.alter({entity: kinds})


async def make_topic(
    asker: Asker, name: str = "t", count: int = 1, version: int = 7, *, validates: bool = False
) -> Any:
    topic = CreatableTopic(
        name=name, num_partitions=count, replication_factor=1, assignments=(), configs=()
    )
    request = CreateTopicsRequest(topics=(topic,), validate_only=validates)
    return await asker.ask(CREATE_TOPICS, version, request)


def produce_request(acks: int = -1, size_bytes: int = BATCH_BYTES) -> ProduceRequest:
    records = bytes(encode_batch([Record(key=None, value=bytes(size_bytes))]))
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=(TopicProduceData(name="t", partition_data=(data,)),),
    )


def fetch_request(offset: int, session: tuple[int, int] = (0, -1)) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session[0],
        session_epoch=session[1],
        topics=() if session[1] > 0 else (FetchTopic(topic="t", partitions=(partition,)),),
    )


async def produced(asker: Asker) -> int:
    """Produce a batch and return the throttle time."""
    answer = await asker.ask(PRODUCE, 9, produce_request())
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    throttle_time_ms: int = answer.throttle_time_ms
    return throttle_time_ms


async def is_served(asker: Asker) -> float:
    """Return the seconds after which another request of a connection is answered."""
    began = trio.current_time()
    await asker.ask(API_VERSIONS, 3, ApiVersionsRequest())
    return trio.current_time() - began


async def test_a_producer_over_its_quota_is_answered_at_once_and_waits(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with secured() as broker:
        asker, other = broker.connect("app"), broker.connect("app")
        await make_topic(asker)
        await set_quota(broker, ANYBODY, **{PRODUCER_BYTE_RATE: 250})
        began = trio.current_time()
        assert await produced(asker) == 0
        throttle_time_ms = await produced(asker)
        # Two requests of 2,000 bytes and a little are over 2,500 bytes by 1,500.
        assert 6_000 < throttle_time_ms < 8_000
        assert trio.current_time() - began < 1
        assert await is_served(other) < 1  # what is not counted goes on elsewhere
        waited = await is_served(asker)
        assert waited == pytest.approx(throttle_time_ms / 1000, abs=0.1)
        assert await produced(other) > 0  # the quota is shared


async def test_a_producer_that_asks_for_no_answer_waits_too(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with secured() as broker:
        asker = broker.connect("app")
        await make_topic(asker)
        await set_quota(broker, APP, **{PRODUCER_BYTE_RATE: 100})
        asker.send(PRODUCE, 9, produce_request(acks=0))
        assert await is_served(asker) > 9


async def test_without_a_quota_nobody_waits(autojump_clock: trio.testing.MockClock) -> None:
    async with secured() as broker:
        asker = broker.connect("app")
        await make_topic(asker)
        await set_quota(broker, ((CLIENT_ID, "another"),), **{PRODUCER_BYTE_RATE: 1})
        began = trio.current_time()
        assert [await produced(asker) for _ in range(20)] == [0] * 20
        await set_quota(broker, APP, **{PRODUCER_BYTE_RATE: 1})
        assert await produced(asker) == WAIT_MAX_SECONDS * 1000
        await set_quota(broker, APP, **{PRODUCER_BYTE_RATE: None})
        assert [await produced(broker.connect("app")) for _ in range(5)] == [0] * 5
        assert trio.current_time() - began < 1


async def fetched(asker: Asker, offset: int, session: tuple[int, int] = (0, -1)) -> Any:
    return await asker.ask(FETCH, 11, fetch_request(offset, session))


async def test_a_consumer_over_its_quota_gets_an_answer_without_topics(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with secured() as broker:
        asker = broker.connect("app")
        await make_topic(asker)
        for _ in range(4):
            await produced(asker)
        await set_quota(broker, APP, **{CONSUMER_BYTE_RATE: 300})
        # In the 10 s that are measured 3,000 bytes are allowed, and a batch has 2,000 and more.
        first = await fetched(asker, 0)
        records = first.responses[0].partitions[0].records
        assert BATCH_BYTES < len(records) < 3_000
        assert first.throttle_time_ms == 0
        second = await fetched(asker, 1)
        assert len(second.responses[0].partitions[0].records) > BATCH_BYTES
        third = await fetched(asker, 2)
        assert third.responses == ()
        assert (third.error_code, third.session_id) == (ErrorCode.NONE, 0)
        assert 3_000 < third.throttle_time_ms < 5_000
        began = trio.current_time()
        fourth = await fetched(asker, 2)
        assert trio.current_time() - began == pytest.approx(third.throttle_time_ms / 1000, abs=0.1)
        assert len(fourth.responses[0].partitions[0].records) > BATCH_BYTES


async def test_a_fetch_session_goes_on_after_an_answer_without_topics(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with secured() as broker:
        asker = broker.connect("app")
        await make_topic(asker)
        await produced(asker)
        await set_quota(broker, APP, **{CONSUMER_BYTE_RATE: 100})
        first = await fetched(asker, 0, (0, 0))
        assert first.session_id > 0
        second = await fetched(asker, 0, (first.session_id, 1))
        assert (second.responses, second.session_id) == ((), first.session_id)
        assert second.throttle_time_ms > 0
        third = await fetched(asker, 0, (first.session_id, 2))
        assert third.error_code == ErrorCode.NONE
        assert len(third.responses[0].partitions[0].records) > BATCH_BYTES


async def test_a_batch_that_is_larger_than_the_quota_is_read_nevertheless(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with secured() as broker:
        asker = broker.connect("app")
        await make_topic(asker)
        await produced(asker)
        await set_quota(broker, APP, **{CONSUMER_BYTE_RATE: 1})
        first = await fetched(asker, 0)
        assert len(first.responses[0].partitions[0].records) > BATCH_BYTES


async def test_changes_of_topics_over_the_quota_are_refused_from_a_version_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with secured() as broker:
        asker, other = broker.connect("app"), broker.connect("other")
        await set_quota(broker, APP, **{CONTROLLER_MUTATION_RATE: 1})
        assert (await make_topic(asker, "u", 20, validates=True)).throttle_time_ms == 0
        made = await make_topic(asker, "t", 20)
        assert (made.topics[0].error_code, made.throttle_time_ms) == (ErrorCode.NONE, 0)
        refused = await make_topic(asker, "u")
        assert refused.topics[0].error_code == THROTTLED
        assert refused.topics[0].error_message.startswith("The throttling quota has been exceeded.")
        assert refused.throttle_time_ms == pytest.approx(9_000, abs=100)
        assert "u" not in broker.core.cluster.image.topics
        assert (await make_topic(other, "v")).topics[0].error_code == ErrorCode.NONE
        # The connection waits for as long, and then one partition is paid for.
        assert (await make_topic(asker, "u")).topics[0].error_code == ErrorCode.NONE
        growth = CreatePartitionsRequest(
            topics=(CreatePartitionsTopic(name="u", count=9, assignments=None),),
            timeout_ms=1,
            validate_only=False,
        )
        refused = await asker.ask(CREATE_PARTITIONS, 3, growth)
        assert refused.results[0].error_code == THROTTLED
        deletion = DeleteTopicsRequest(topic_names=("t",), timeout_ms=1)
        connected = broker.connect("app")
        refused = await connected.ask(DELETE_TOPICS, 5, deletion)
        assert refused.responses[0].error_code == THROTTLED
        assert "t" in broker.core.cluster.image.topics
        # Older requests are made, and their connections wait.
        connected = broker.connect("app")
        deleted = await connected.ask(DELETE_TOPICS, 4, deletion)
        assert deleted.responses[0].error_code == ErrorCode.NONE
        assert deleted.throttle_time_ms > 19_000
        connected = broker.connect("app")
        older = await make_topic(connected, "w", 1, 5)
        assert older.topics[0].error_code == ErrorCode.NONE
        assert 19_000 < older.throttle_time_ms <= 20_000


async def test_a_topic_that_metadata_creates_counts_and_is_created(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with secured(auto_create_topics_enable="true") as broker:
        asker = broker.connect("app")
        await set_quota(broker, APP, **{CONTROLLER_MUTATION_RATE: 0.01})
        request = MetadataRequest(
            topics=(MetadataRequestTopic(name="a"),), allow_auto_topic_creation=True
        )
        answer = await asker.ask(METADATA, 9, request)
        assert answer.topics[0].error_code == ErrorCode.NONE
        assert 19_000 < answer.throttle_time_ms <= 20_000


async def ask_what_takes_time(
    broker: Secured, asker: Asker, clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Send a request that takes 0.25 s or more of the loop."""
    image = type(broker.core.cluster).image

    def slow_image(cluster: Any) -> Any:
        clock.jump(0.25)  # as if a step of the loop took so long
        return image.__get__(cluster)

    monkeypatch.setattr(type(broker.core.cluster), "image", property(slow_image))
    await asker.ask(METADATA, 9, MetadataRequest(topics=()))
    monkeypatch.undo()


async def test_the_time_of_the_loop_counts_and_what_waits_does_not(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with secured() as broker:
        asker, other = broker.connect("app"), broker.connect("other")
        await make_topic(asker)
        await set_quota(broker, APP, **{REQUEST_PERCENTAGE: 2})
        await is_served(asker)
        # A long poll takes no time of the loop.
        wait = FetchRequest(max_wait_ms=30_000, min_bytes=1, topics=fetch_request(0).topics)
        assert (await asker.ask(FETCH, 11, wait)).throttle_time_ms == 0
        assert await is_served(asker) == 0
        await ask_what_takes_time(broker, asker, autojump_clock, monkeypatch)
        answer = await asker.ask(API_VERSIONS, 3, ApiVersionsRequest())
        assert 0 < answer.throttle_time_ms <= 1_000
        assert await is_served(other) == 0
        assert await is_served(asker) > 0


async def test_the_time_of_the_loop_counts_after_a_restart(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FakeMetaStore()
    store.put({quota_key(APP): pack_values({REQUEST_PERCENTAGE: 2})})
    async with secured(store=store) as broker:
        asker = broker.connect("app")
        await is_served(asker)
        await ask_what_takes_time(broker, asker, autojump_clock, monkeypatch)
        answer = await asker.ask(API_VERSIONS, 3, ApiVersionsRequest())
        assert 0 < answer.throttle_time_ms <= 1_000


async def test_a_fetch_over_the_quota_of_time_has_records_and_the_next_one_waits(
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without records a client would never make progress if an empty answer is over its quota."""
    async with secured() as broker:
        asker = broker.connect("app")
        await make_topic(asker)
        await produced(asker)
        await set_quota(broker, APP, **{REQUEST_PERCENTAGE: 2})
        await is_served(asker)
        await ask_what_takes_time(broker, asker, autojump_clock, monkeypatch)
        for _ in range(3):
            began = trio.current_time()
            answer = await fetched(asker, 0)
            assert trio.current_time() - began <= 1
            assert len(answer.responses[0].partitions[0].records) > BATCH_BYTES
            assert 0 < answer.throttle_time_ms <= 1_000


async def test_the_time_of_the_last_request_of_a_connection_counts(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that opened a connection for each request used nothing."""
    async with secured() as broker:
        await set_quota(broker, APP, **{REQUEST_PERCENTAGE: 2})
        asker = broker.connect("app")
        await ask_what_takes_time(broker, asker, autojump_clock, monkeypatch)
        asker.client.half_close()
        await asker.client.closed()
        answer = await broker.connect("app").ask(API_VERSIONS, 3, ApiVersionsRequest())
        assert 0 < answer.throttle_time_ms <= 1_000


@pytest.mark.parametrize(
    ("entity", "kind", "value"),
    [
        (((USER, None),), REQUEST_PERCENTAGE, 5e-324),
        (((USER, None),), CONTROLLER_MUTATION_RATE, 5e-324),
        (((USER, None),), PRODUCER_BYTE_RATE, 1e-7),
        (((IP, None),), CONNECTION_CREATION_RATE, 1e-7),
    ],
)
async def test_a_stored_quota_that_lets_nothing_pass_does_not_count_and_can_be_removed(
    autojump_clock: trio.testing.MockClock, entity: Entity, kind: str, value: float
) -> None:
    store = FakeMetaStore()
    store.put({quota_key(entity): pack_values({kind: value})})
    async with secured(store=store) as broker:
        assert await is_served(broker.connect("app")) == 0
        assert broker.core.quotas.table.of == {}
        await set_quota(broker, entity, **{kind: None})
        assert (await store.range("/quotas/"))[0] == {}


@pytest.mark.parametrize("kind", [REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE])
async def test_the_smallest_quota_lets_something_pass(
    autojump_clock: trio.testing.MockClock, kind: str
) -> None:
    async with secured() as broker:
        await set_quota(broker, ((USER, None),), **{kind: LEAST})
        asker = broker.connect("app")
        for number in range(3):
            assert await asker.ask(API_VERSIONS, 3, ApiVersionsRequest()) is not None
            made = await make_topic(asker, f"t{number}", version=5)
            assert made.topics[0].error_code == ErrorCode.NONE


async def test_connections_from_the_machine_itself_do_not_count(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with secured() as broker:
        await set_quota(broker, ((IP, None),), **{CONNECTION_CREATION_RATE: 1})
        host = "192.0.2.77"
        while not broker.core.quotas.accounts.connect(host):
            pass
        far, near = broker.connect(host=host), broker.connect(host=host, is_local=True)
        assert await is_served(near) == 0
        assert await far.ask(API_VERSIONS, 3, ApiVersionsRequest()) is None


async def test_an_address_that_connects_too_often_is_sent_away_after_a_delay(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with secured() as broker:
        await set_quota(broker, ((IP, "192.0.2.3"),), **{CONNECTION_CREATION_RATE: 1})
        # Each client of this network has an address of its own.
        first, second = broker.connect(), broker.connect()
        assert (await is_served(first), await is_served(second)) == (0, 0)
        accounts = broker.core.quotas.accounts
        while not accounts.connect("192.0.2.3"):
            pass
        third, fourth = broker.connect(), broker.connect()
        assert await is_served(fourth) == 0
        began = trio.current_time()
        assert await third.ask(API_VERSIONS, 3, ApiVersionsRequest()) is None
        assert 0 < trio.current_time() - began <= 1


async def test_of_many_connections_over_the_quota_some_are_delayed_and_the_others_closed_at_once(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "REFUSED_AT_ONCE", 3)
    async with secured() as broker:
        await set_quota(broker, ((IP, None),), **{CONNECTION_CREATION_RATE: 1})
        for _ in range(2):
            began = trio.current_time()
            askers = [broker.connect(host="192.0.2.77") for _ in range(10 + 5)]
            await trio.testing.wait_all_tasks_blocked()
            assert trio.current_time() == began
            assert sum(each.client.is_closed for each in askers) == 2
            await trio.sleep(1.5)
            assert sum(each.client.is_closed for each in askers) == 5
            await trio.sleep(20)  # the quota is whole again


def test_what_requests_without_a_connection_share_cannot_be_held() -> None:
    NOT_THROTTLED.hold(PRODUCER_BYTE_RATE, 0)
    with pytest.raises(AssertionError, match="they wait 1 s"):
        NOT_THROTTLED.hold(PRODUCER_BYTE_RATE, 1)
    assert NOT_THROTTLED.until == 0


@pytest.mark.parametrize("key", APIS, ids=lambda key: APIS[key].name)
async def test_every_answer_that_has_a_place_for_it_says_how_long_the_connection_is_not_read(
    autojump_clock: trio.testing.MockClock, key: int
) -> None:
    api: Api[Any, Any] = APIS[key]
    throttle = Throttle()
    throttle.hold(PRODUCER_BYTE_RATE, 7.5)
    server = ServerProtocol(APIS)
    for version in range(api.min_version, api.max_version + 1):
        answer = throttle.with_time(sample(api.response, version))
        request = Request(api, version, 1, "app", None)
        frame = b"".join(server.build_response(request, answer))
        cursor = Cursor(frame)
        cursor.position = 9 if api.is_flexible(version) and key != API_VERSIONS.key else 8
        parsed = api.parse_response(version, cursor)
        declared = api.response.__dataclass_fields__.get("throttle_time_ms")
        if declared is None:
            assert key in WITHOUT_PLACE
        elif version >= api.max_version:
            assert parsed.throttle_time_ms == 7_500
        else:
            assert parsed.throttle_time_ms in (0, 7_500)  # early versions have none
