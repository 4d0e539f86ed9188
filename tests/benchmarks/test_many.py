"""The arithmetic of the rows about many ids, partitions and records; nothing is timed here."""

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.txn import loading
from odradek.broker.txn.transaction import State
from odradek.protocol.apis.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.protocol.apis.txn import EndTxnResponse
from odradek.protocol.batch import iter_batches
from odradek.protocol.errors import ErrorCode
from odradek.protocol.state_records import iter_state_records
from odradek.protocol.state_topics import state_partition
from scripts.benchmarks.figures import OURS, rows
from scripts.benchmarks.java_client import taken_ms
from scripts.benchmarks.many import FAMILY, _dealt, _growth, growth
from scripts.benchmarks.raw_producer import RawProducer, error_codes, together
from scripts.benchmarks.recovery import KINDS, PARTITIONS, SEGMENT, Kind, plant
from scripts.benchmarks.transactions import WARM_UP, latencies
from tests.fakes.state_partition import FakeStatePartition


def test_growth_is_the_cost_of_one_of_most_over_that_of_one_of_fewest() -> None:
    assert growth([2.0, 9.0, 3.0]) == 1.5
    for costs, holds in (([2.0, 2.9], True), ([2.0, 3.0], False)):
        (row,) = rows({OURS: [_growth("row", costs)]}, None)
        assert (row.figure.family, row.holds) == (FAMILY, holds)


def test_percentiles_leave_out_the_first_transactions() -> None:
    times = [1_000.0] * WARM_UP + [float(number) for number in range(1, 100)]
    p50, p99 = latencies("family", "client", times)
    assert (p50.name, p50.value) == ("transaction p50, client", 50)
    assert (p99.name, p99.value) == ("transaction p99, client", 99)
    assert p50.floor is not None
    assert p99.floor is not None
    assert (p50.floor.limit, p99.floor.limit) == (6, 15)


def test_what_the_java_program_prints_is_in_microseconds() -> None:
    assert taken_ms("1500\n20\n") == [1.5, 0.02]


def test_producers_are_dealt_to_the_connections() -> None:
    producers = [RawProducer(transactional_id=str(number)) for number in range(17)]
    assert [len(some) for some in _dealt(producers)] == [8, 8, 1]


def produced(*codes: int) -> ProduceResponse:
    parts = tuple(
        PartitionProduceResponse(index=number, error_code=code, base_offset=0)
        for number, code in enumerate(codes)
    )
    return ProduceResponse(responses=(TopicProduceResponse(name="t", partition_responses=parts),))


def ended(code: int) -> EndTxnResponse:
    return EndTxnResponse(error_code=code, producer_id=1, producer_epoch=2)


def test_error_codes_are_found_in_each_kind_of_answer() -> None:
    assert error_codes(produced(0, 51)) == [0, 51]
    assert error_codes(ended(14)) == [14]


class Scripted:
    """A connection that answers what it was told to, one after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked = 0

    def request(self, *question: Any) -> None:
        self.asked += 1

    def response(self) -> Any:
        return self.answers.pop(0)


def test_who_came_too_early_asks_again_and_nobody_else() -> None:
    late = Scripted(ended(ErrorCode.CONCURRENT_TRANSACTIONS), ended(0))
    at_once = Scripted(produced(0))
    question = RawProducer(transactional_id="a").commit()
    connections: Any = [late, at_once]
    assert together(connections, [question, question]) == [ended(0), produced(0)]
    assert (late.asked, at_once.asked) == (2, 1)


def test_a_refusal_ends_the_benchmark() -> None:
    connections: Any = [Scripted(ended(ErrorCode.PRODUCER_FENCED))]
    with pytest.raises(RuntimeError, match="90"):
        together(connections, [RawProducer(transactional_id="a").commit()])


def test_a_producer_goes_on_with_what_the_end_tells() -> None:
    producer = RawProducer(transactional_id="a")
    producer.take(SimpleNamespace(producer_id=7, producer_epoch=3))
    assert (producer.commit()[2].producer_id, producer.commit()[2].producer_epoch) == (7, 3)


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_planted_records_are_where_their_ids_belong(kind: Kind, tmp_path: Path) -> None:
    for place in range(PARTITIONS):
        (tmp_path / f"{kind.topic}-{place}").mkdir()
    ids = [f"service-{number}" for number in range(20)]

    plant(tmp_path, kind, ids)

    for each in ids:
        path = tmp_path / f"{kind.topic}-{state_partition(each, PARTITIONS)}" / SEGMENT
        keys = [key for *_, key, _ in iter_state_records(path.read_bytes())]
        mine = [key for key in keys if key and key[2:].startswith(struct.pack(">h", len(each)))]
        assert len([key for key in mine if each.encode() in key]) == 4
        offsets = [header.base_offset for header, _ in iter_batches(path.read_bytes())]
        assert offsets == list(range(len(offsets)))


async def test_what_is_planted_for_transactions_ends_complete(tmp_path: Path) -> None:
    (kind, _) = KINDS
    for place in range(PARTITIONS):
        (tmp_path / f"{kind.topic}-{place}").mkdir()
    plant(tmp_path, kind, ["service-1"])
    path = tmp_path / f"{kind.topic}-{state_partition('service-1', PARTITIONS)}" / SEGMENT
    partition = FakeStatePartition()
    partition.replace_batches([bytearray(batch) for _, batch in iter_batches(path.read_bytes())])
    (transaction,) = (await loading.load(partition)).values()
    assert transaction.state is State.COMPLETE_COMMIT
