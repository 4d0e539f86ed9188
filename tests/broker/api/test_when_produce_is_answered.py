"""When a Produce is answered: at the high watermark, by which every reader sees the records."""

from types import SimpleNamespace
from typing import cast

import pytest

from odradek.broker.api.context import Core, Deferred, RequestContext
from odradek.broker.api.produce import produce
from odradek.broker.storage.config import FlushPolicy, LogConfig
from odradek.protocol.apis.produce import ProduceResponse
from odradek.protocol.errors import ErrorCode
from tests.broker.asks import batch, produce_request
from tests.broker.storage.samples import TOPIC, Machine


async def asked(machine: Machine, acks: int) -> ProduceResponse | Deferred | None:
    """What the handler returns for one batch, before anything has waited for the disk."""
    core = cast(Core, SimpleNamespace(partitions=machine.partitions))
    context = RequestContext(core=core, api_version=9, client_id="sarama", host="127.0.0.1")
    return await produce(context, produce_request(TOPIC, batch(b"a"), acks=acks))


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


@pytest.mark.parametrize("acks", [1, -1])
async def test_what_counts_as_soon_as_it_is_appended_is_answered_at_once(acks: int) -> None:
    machine = Machine(config=LogConfig(flush=FlushPolicy.OS))
    partition = await machine.start()
    assert isinstance(await asked(machine, acks), ProduceResponse)
    assert partition.high_watermark == 1
