"""When a Produce is answered: at the high watermark, by which every reader sees the records."""

from types import SimpleNamespace
from typing import cast

import pytest

from odradek.broker.api.context import Core, Deferred, RequestContext
from odradek.broker.api.produce import produce
from odradek.broker.storage.config import FlushPolicy, LogConfig
from odradek.protocol.apis.produce import ProduceRequest, ProduceResponse, TopicProduceData
from odradek.protocol.errors import ErrorCode
from tests.broker.asks import batch, produce_request
from tests.broker.storage.samples import TOPIC, Machine
from tests.fakes.clock import FakeClock


async def asked(machine: Machine, acks: int) -> ProduceResponse | Deferred | None:
    """What the handler returns for one batch, before anything has waited for the disk."""
    return await produce(context_of(machine), produce_request(TOPIC, batch(b"a"), acks=acks))


def context_of(machine: Machine) -> RequestContext:
    config = SimpleNamespace(transaction_concurrent_wait_ms=0)
    core = SimpleNamespace(partitions=machine.partitions, config=config, clock=FakeClock())
    return RequestContext(core=cast(Core, core), api_version=9, client_id="odd", host="127.0.0.1")


@pytest.mark.parametrize("acks", [1, -1])
async def test_an_answered_record_is_seen_by_the_next_fetch_also_with_acks_1(acks: int) -> None:
    """sarama's default is acks=1; the end offset lagged behind what was acknowledged."""
    machine = Machine()
    partition = await machine.start()
    answer = await asked(machine, acks)
    assert isinstance(answer, Deferred), "answered before the high watermark covers the record"
    assert partition.high_watermark == 0
    response = await answer.finish()
    assert response.responses[0].partition_responses[0].error_code is ErrorCode.NONE
    assert partition.high_watermark == 1


async def test_an_answer_with_many_topics_is_not_built_where_the_fsync_ends() -> None:
    """With 199,000 topics that have no partition it held the loop for half a second."""
    machine = Machine()
    await machine.start()
    context = context_of(machine)
    small = produce_request(TOPIC, batch(b"a"), acks=-1)
    empty = TopicProduceData(name="empty", partition_data=())
    large = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=small.timeout_ms,
        topic_data=(*small.topic_data, empty),
    )
    for request, is_small in ((small, True), (large, False)):
        answer = await produce(context, request)
        assert isinstance(answer, Deferred)
        assert (answer.call_when_due is not None) == is_small
        response = await answer.finish()
        assert [topic.name for topic in response.responses] == [
            topic.name for topic in request.topic_data
        ]


@pytest.mark.parametrize("acks", [1, -1])
async def test_what_counts_as_soon_as_it_is_appended_is_answered_at_once(acks: int) -> None:
    machine = Machine(config=LogConfig(flush=FlushPolicy.OS))
    partition = await machine.start()
    assert isinstance(await asked(machine, acks), ProduceResponse)
    assert partition.high_watermark == 1
