"""What has bitten other brokers between one API and the next, each once, over a socket.

The numbers are those of the bug reports. What one part of the broker keeps out by itself is with
the tests of that part (`txn`, `storage`, `group` beside this folder).
"""

import pytest

from odradek.broker.testing import RunningBroker
from odradek.protocol.apis.fetch import FETCH
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.batch import iter_batches
from odradek.protocol.errors import ErrorCode
from tests.broker.api.test_fetch import FOR_EVER_MS
from tests.broker.api.transactor import Transactor
from tests.broker.asks import batch, fetch_request, produce
from tests.broker.raw import RawClient

E = ErrorCode


@pytest.fixture
def transactor(client: RawClient) -> Transactor:
    made = Transactor(client)
    made.init()
    return made


@pytest.mark.parametrize("version", [9, 11, 12])
def test_not_every_batch_beside_a_transactional_id_is_part_of_the_transaction(
    transactor: Transactor, version: int
) -> None:
    """KAFKA-14916: a plain batch was looked for in the transaction, because its request had a
    transactional id."""
    transactor.add((0,))
    in_transaction = batch(
        b"a", producer=transactor.producer, base_sequence=0, is_transactional=True
    )
    request = ProduceRequest(
        transactional_id=transactor.id,
        acks=-1,
        timeout_ms=5000,
        topic_data=(
            TopicProduceData(
                name=transactor.topic,
                partition_data=(
                    PartitionProduceData(index=0, records=in_transaction),
                    PartitionProduceData(index=1, records=batch(b"plain")),
                ),
            ),
        ),
    )
    answers = transactor.client.ask(PRODUCE, version, request).responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [E.NONE, E.NONE]
    assert transactor.visible(partition=1).last_stable_offset == 1
    assert transactor.end(version=5).error_code == E.NONE
    transactor.wait_until_complete(0)
    transactor.add((0,))  # waits until the end before is complete
    assert transactor.visible(partition=0).high_watermark == 2
    assert transactor.visible(partition=1).high_watermark == 1  # it got no marker


@pytest.mark.parametrize("committed", [False, True])
def test_a_reader_that_waits_across_the_end_of_a_transaction_learns_how_it_ended(
    transactor: Transactor, shared_broker: RunningBroker, committed: bool
) -> None:
    """KAFKA-5376, KoP #1283: a fetch that had waited was answered as one that reads uncommitted
    records, or without the list of those that were aborted."""
    first = transactor.producer[0]
    assert transactor.produce(b"in a transaction", version=12).error_code == E.NONE
    waiting = fetch_request(transactor.topic, 0, isolation_level=1, max_wait_ms=FOR_EVER_MS)
    with RawClient(shared_broker) as reader:
        reader.request(FETCH, 12, waiting)
        # news that is none for this reader
        produce(transactor.client, transactor.topic, batch(b"plain"))
        produce(transactor.client, transactor.topic, batch(b"plain"))
        assert transactor.end(version=5, committed=committed).error_code == E.NONE
        answer = reader.response().responses[0].partitions[0]
    assert [header.base_offset for header, _ in iter_batches(answer.records)] == [0, 1, 2, 3]
    assert (answer.last_stable_offset, answer.high_watermark) == (4, 4)
    aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]
    assert aborted == ([] if committed else [(first, 0)])


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [3, 5])
def test_partitions_that_were_added_and_never_written_to_hold_up_no_end(
    transactor: Transactor, version: int, committed: bool
) -> None:
    """YDB #51053: their leaders know nothing of the producer, and the end failed there."""
    transactor.add((0, 1))
    assert transactor.end(version=version, committed=committed).error_code == E.NONE
    assert transactor.add((1,)) == [E.NONE]  # waits until the end before is complete
    assert transactor.produce(b"a", version=11, partition=1).error_code == E.NONE
    assert transactor.end(version=version).error_code == E.NONE
    transactor.wait_until_complete(1)
    assert transactor.visible(partition=0).last_stable_offset == 1
    read = transactor.visible(partition=1)
    assert read.last_stable_offset == 3
    assert [header.is_control for header, _ in iter_batches(read.records)] == [True, False, True]
