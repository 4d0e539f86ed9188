"""Blocks of producer ids: ids are unique in spite of crashes and of other brokers."""

import pytest
import trio

from odradek.broker.txn.producer_ids import BLOCK_SIZE, PRODUCER_IDS_KEY, ProducerIds
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.fakes.meta_store import FakeMetaStore, MetaServer


async def test_ids_begin_at_0_and_go_on_over_blocks() -> None:
    ids = ProducerIds(FakeMetaStore())
    found = [await ids.next() for _ in range(2 * BLOCK_SIZE + 1)]
    assert found == list(range(2 * BLOCK_SIZE + 1))


async def test_an_id_is_not_used_again_after_a_crash() -> None:
    meta = FakeMetaStore()
    before = [await ProducerIds(meta).next() for _ in range(3)]
    assert before == [0, BLOCK_SIZE, 2 * BLOCK_SIZE]


async def test_a_block_is_durable_before_its_first_id_is_given() -> None:
    meta = FakeMetaStore()
    ids = ProducerIds(meta)
    assert ids.next_nowait() is None
    assert await ids.next() == 0
    assert meta.values[PRODUCER_IDS_KEY].value == b"%d" % BLOCK_SIZE


async def test_two_brokers_that_want_a_block_at_once_get_two() -> None:
    meta = FakeMetaStore()

    def faster() -> None:
        meta.before_txn = lambda: None
        meta.put({PRODUCER_IDS_KEY: b"7000"})

    meta.before_txn = faster
    assert await ProducerIds(meta).next() == 7000
    assert meta.values[PRODUCER_IDS_KEY].value == b"8000"


async def test_many_who_wait_share_one_block() -> None:
    meta = FakeMetaStore()
    ids = ProducerIds(meta)
    found: list[int] = []

    async def take_one() -> None:
        found.append(await ids.next())

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(take_one)
    assert sorted(found) == list(range(20))
    assert meta.txn_count == 1


async def test_a_neighbouring_key_is_not_mistaken_for_the_block() -> None:
    meta = FakeMetaStore()
    meta.put({PRODUCER_IDS_KEY + "/other": b"5"})
    assert await ProducerIds(meta).next() == 0


async def test_a_block_whose_claim_was_lost_is_not_taken_for_that_of_a_faster_broker() -> None:
    """Two brokers that claim the same block write the same value: it does not show who wrote."""
    server = MetaServer()
    mine, other = FakeMetaStore(server), FakeMetaStore(server)
    ids, others = ProducerIds(mine), ProducerIds(other)

    def faster() -> None:
        other.put({PRODUCER_IDS_KEY: b"%d" % BLOCK_SIZE})
        mine.before_txn = lambda: None

    answers = iter([False, True])
    mine.loses_answer = lambda: next(answers, False)
    mine.before_txn = faster
    with pytest.raises(KafkaError) as refused:
        await ids.next()
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await ids.next() == BLOCK_SIZE
    assert await others.next() == 2 * BLOCK_SIZE


async def test_a_block_whose_claim_was_applied_without_an_answer_is_lost_and_no_other() -> None:
    meta = FakeMetaStore()
    answers = iter([False, True])
    meta.loses_answer = lambda: next(answers, False)
    ids = ProducerIds(meta)
    with pytest.raises(KafkaError) as refused:
        await ids.next()
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert [await ids.next() for _ in range(2)] == [BLOCK_SIZE, BLOCK_SIZE + 1]


async def test_all_that_wait_for_a_block_share_its_failure() -> None:
    """Seen: they waited for each other, and the broker did nothing else any more."""
    meta = FakeMetaStore()
    answers = iter([True])
    meta.loses_answer = lambda: next(answers, False)
    ids = ProducerIds(meta)
    refused: list[ErrorCode] = []

    async def refill() -> None:
        try:
            await ids.refill()
        except KafkaError as error:
            refused.append(error.code)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(refill)
    assert refused == 3 * [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert await ids.next() == 0
