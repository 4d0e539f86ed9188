"""Refused requests are explained: in the log, and in the answer where it has room."""

from collections.abc import Iterator

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.apis.txn import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    INIT_PRODUCER_ID_2PC,
    TXN_OFFSET_COMMIT,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsRequest
from odradek.protocol.errors import ErrorCode
from tests.broker.api.producing import settled
from tests.broker.asks import batch, create_topic, produce_request
from tests.broker.raw import RawClient

ME = "refunds-2"
OLD_EPOCH = "Producer attempted to produce with an old epoch."
BECAUSE = "'refunds-2' was fenced: a new instance from 127.0.0.1 as 'worker-7' started "


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with run_broker() as running:
        yield running


def init(
    client: RawClient, *, version: int = 5, by_administrator: bool = False
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id=ME, transaction_timeout_ms=60_000, by_administrator=by_administrator
    )
    answer: InitProducerIdResponse = settled(lambda: client.ask(INIT_PRODUCER_ID, version, request))
    assert answer.error_code == ErrorCode.NONE
    return answer


def test_a_zombie_is_told_who_took_its_place(broker: RunningBroker) -> None:
    with RawClient(broker, "worker-6") as old, RawClient(broker, "worker-7") as new:
        create_topic(old, "refunds")
        zombie = init(old)
        who = (zombie.producer_id, zombie.producer_epoch)
        init(new)

        data = batch(b"late", producer=who, base_sequence=0, is_transactional=True)
        produce = produce_request("refunds", data, transactional_id=ME)
        answer = old.ask(PRODUCE, 12, produce).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert answer.error_message.startswith(f"{OLD_EPOCH} {BECAUSE}")

        end = EndTxnRequest(
            transactional_id=ME, producer_id=who[0], producer_epoch=who[1], committed=True
        )
        assert old.ask(END_TXN, 5, end).error_code == ErrorCode.PRODUCER_FENCED
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ME,
            v3_and_below_producer_id=who[0],
            v3_and_below_producer_epoch=who[1],
            v3_and_below_topics=(AddPartitionsToTxnTopic(name="refunds", partitions=(0,)),),
        )
        old.ask(ADD_PARTITIONS_TO_TXN, 3, add)
        offsets = TxnOffsetCommitRequest(
            transactional_id=ME,
            group_id="g",
            producer_id=who[0],
            producer_epoch=who[1],
            topics=(
                TxnOffsetCommitRequestTopic(
                    name="refunds",
                    partitions=(
                        TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=1, committed_metadata=""
                        ),
                    ),
                ),
            ),
        )
        code = old.ask(TXN_OFFSET_COMMIT, 5, offsets).topics[0].partitions[0].error_code
        assert code == ErrorCode.INVALID_PRODUCER_EPOCH
    lines = [line for line in broker.log.splitlines() if "refused" in line]
    assert f"a batch for refunds-0 of 127.0.0.1 as 'worker-6' was refused: {BECAUSE}" in lines[0]


def test_an_administrator_who_says_so_is_told_apart_from_a_new_instance(
    broker: RunningBroker,
) -> None:
    with RawClient(broker, "worker-6") as client, RawClient(broker, "odradek txn") as tool:
        create_topic(client, "refunds")
        me = init(client)
        who = (me.producer_id, me.producer_epoch)
        data = batch(b"x", producer=who, base_sequence=0, is_transactional=True)
        client.ask(PRODUCE, 12, produce_request("refunds", data, transactional_id=ME))
        init(tool, by_administrator=True)
    assert (
        "'refunds-2' was fenced: an administrator at 127.0.0.1 as 'odradek txn' took its id; "
        "aborted: producer id 0, epoch 0, 1 partition, open for "
    ) in broker.log


@pytest.mark.parametrize("is_on", [True, False])
def test_the_unstable_version_is_served_only_where_it_is_asked_for(is_on: bool) -> None:
    config = {"transaction.two.phase.commit.enable": str(is_on).lower()}
    with run_broker(config=config) as broker, RawClient(broker) as client:
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        served = client.ask(API_VERSIONS, 3, request).api_keys
        (listed,) = (api for api in served if api.api_key == INIT_PRODUCER_ID.key)
        assert listed.max_version == (6 if is_on else 5)
        wanted = InitProducerIdRequest(
            transactional_id=ME, transaction_timeout_ms=-1, enable2_pc=True
        )
        if is_on:
            answer = client.ask(INIT_PRODUCER_ID_2PC, 6, wanted)
            assert answer.error_code == ErrorCode.NONE
            assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == (-1, -1)
        else:
            client.request(INIT_PRODUCER_ID_2PC, 6, wanted)
            assert client.is_closed_by_broker()
