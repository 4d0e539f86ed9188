"""Two-phase commit (KIP-939): a prepared transaction outlives its producer, and its broker."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import trio
import trio.testing

from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.transaction import (
    NO_TIMEOUT_MS,
    BumpCause,
    ProducerIdAndEpoch,
    State,
    TransactionMetadata,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.txn.world import CLIENT, ID, OTHER, P0, P1, START_MS, World, producer, refused

CONFIG = TransactionConfig(
    transaction_state_log_num_partitions=1, transaction_two_phase_commit_enable=True
)
PREPARED = TransactionMetadata(
    producer_id=7,
    producer_epoch=100,
    previous_producer_id=7,
    timeout_ms=NO_TIMEOUT_MS,
    state=State.ONGOING,
    partitions=frozenset({P0}),
    started_ms=START_MS,
    updated_ms=START_MS,
    transaction_version=2,
    client=CLIENT,
)


@pytest.fixture
async def bank(nursery: trio.Nursery) -> AsyncIterator[World]:
    """A coordinator that serves two-phase commit."""
    world = World(nursery, CONFIG)
    await world.start()
    yield world
    world.stop()


async def prepared(world: World, *, two_phase: bool = True) -> ProducerIdAndEpoch:
    me = (await world.prepare_anew(two_phase=two_phase)).producer
    await world.add(me, P0)
    return me


def epochs_of_markers(world: World) -> list[tuple[int, int, bool]]:
    return [(m.producer_id, m.producer_epoch, m.committed) for m in world.markers.written]


async def test_it_is_refused_as_long_as_the_setting_is_off(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for two_phase, keep in ((True, False), (False, True), (True, True)):
        with refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
            await world.prepare_anew(two_phase=two_phase, keep=keep)
    assert "transaction.two.phase.commit.enable is false" in caplog.text
    assert list(world.coordinator.transactions()) == []


async def test_a_prepared_transaction_never_times_out(bank: World) -> None:
    await prepared(bank)
    view = bank.coordinator.describe(ID)
    assert (view.timeout_ms, view.times_out_in_ms) == (2**31 - 1, None)
    await trio.sleep(30 * 24 * 3600)
    assert bank.state is State.ONGOING


async def test_the_time_out_in_the_request_does_not_matter_in_two_phases(bank: World) -> None:
    for timeout_ms in (-1, 0, 2**31 - 1):
        await bank.coordinator.init_producer_id(
            transactional_id=ID,
            timeout_ms=timeout_ms,
            expected=None,
            client=CLIENT,
            two_phase=True,
        )


@pytest.mark.parametrize("committed", [True, False])
async def test_the_next_instance_ends_what_was_prepared(bank: World, committed: bool) -> None:
    me = await prepared(bank)
    answer = await bank.prepare_anew(keep=True, client=OTHER)
    assert answer.ongoing == me
    assert answer.producer == producer(me.producer_id, me.producer_epoch + 1)
    assert bank.state is State.ONGOING
    assert bank.transaction.client == OTHER
    finish = bank.commit if committed else bank.abort
    told = await finish(answer.producer)
    assert told == producer(me.producer_id, me.producer_epoch + 2)
    expected = State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT
    assert await bank.settled() is expected
    # The marker is one above the records, whatever the producer is called by now.
    assert epochs_of_markers(bank) == [(me.producer_id, me.producer_epoch + 1, committed)]
    assert bank.transaction.current == told
    await bank.add(told, P1)
    await bank.commit(told)
    assert await bank.settled() is State.COMPLETE_COMMIT


async def test_the_instance_before_is_locked_out(bank: World) -> None:
    me = await prepared(bank)
    answer = await bank.prepare_anew(keep=True)
    for attempt in (bank.commit, bank.abort):
        with refused(ErrorCode.PRODUCER_FENCED):
            await attempt(me)
    with refused(ErrorCode.PRODUCER_FENCED):
        await bank.add(me, P1)
    verified = bank.coordinator.verify(transactional_id=ID, producer=me, partitions=[P0])
    assert verified == {P0: ErrorCode.PRODUCER_FENCED}
    await bank.commit(answer.producer)
    assert await bank.settled() is State.COMPLETE_COMMIT
    with refused(ErrorCode.PRODUCER_FENCED):
        await bank.commit(me)


async def test_the_new_instance_may_only_end_it(bank: World) -> None:
    await prepared(bank)
    answer = await bank.prepare_anew(keep=True)
    with refused(ErrorCode.INVALID_TXN_STATE):
        await bank.add(answer.producer, P0)
    with refused(ErrorCode.INVALID_TXN_STATE):
        await bank.add(answer.producer, P1)
    assert bank.transaction.partitions == {P0}


async def test_a_lost_answer_is_given_again(bank: World) -> None:
    """The end of the new instance is retried with the epoch that it spent."""
    await prepared(bank)
    answer = await bank.prepare_anew(keep=True)
    told = await bank.commit(answer.producer)
    await bank.settled()
    assert await bank.commit(answer.producer) == told
    with refused(ErrorCode.INVALID_TXN_STATE):
        await bank.abort(answer.producer)


async def test_the_instance_before_gets_no_epoch_from_the_end_of_the_new_one(bank: World) -> None:
    """Its epoch is not the last one that may be named in a retry: that is the new instance's."""
    me = await prepared(bank)
    answer = await bank.prepare_anew(keep=True)
    told = await bank.commit(answer.producer)
    await bank.settled()
    with refused(ErrorCode.PRODUCER_FENCED):
        await bank.prepare_anew(me)
    assert (await bank.prepare_anew(answer.producer)).producer == told


async def test_a_delayed_commit_of_the_new_instance_does_not_end_its_next_transaction(
    bank: World,
) -> None:
    """apache/kafka#21735: why the end spends an epoch although the start has spent one already."""
    await prepared(bank)
    answer = await bank.prepare_anew(keep=True)
    told = await bank.commit(answer.producer)
    await bank.add(told, P1)
    with refused(ErrorCode.PRODUCER_FENCED):
        await bank.commit(answer.producer)
    assert bank.transaction.partitions == {P1}


async def test_instance_after_instance_keeps_it(bank: World) -> None:
    me = await prepared(bank)
    for number in range(1, 5):
        answer = await bank.prepare_anew(keep=True)
        assert answer.ongoing == me
        assert answer.producer == producer(me.producer_id, me.producer_epoch + number)
    await bank.commit(answer.producer)
    await bank.settled()
    assert epochs_of_markers(bank) == [(me.producer_id, me.producer_epoch + 1, True)]
    assert bank.transaction.current == producer(me.producer_id, me.producer_epoch + 5)


async def test_a_retried_start_is_recognised(bank: World) -> None:
    me = await prepared(bank)
    first = await bank.prepare_anew(me, keep=True)
    again = await bank.prepare_anew(me, keep=True)
    assert first == again
    following = await bank.prepare_anew(first.producer, keep=True)
    assert following.producer.producer_epoch == first.producer.producer_epoch + 1
    with refused(ErrorCode.PRODUCER_FENCED):
        await bank.prepare_anew(me, keep=True)


async def test_a_stale_instance_keeps_nothing(bank: World) -> None:
    me = await prepared(bank)
    with refused(ErrorCode.PRODUCER_FENCED):
        await bank.prepare_anew(producer(me.producer_id, 77), keep=True)
    with refused(ErrorCode.PRODUCER_FENCED):
        await bank.prepare_anew(producer(5, 0), keep=True)
    assert bank.transaction.current == me


async def test_without_anything_open_it_is_a_plain_start(bank: World) -> None:
    assert (await bank.prepare_anew(keep=True)).ongoing is None
    me = await prepared(bank)
    await bank.commit(me)
    answer = await bank.prepare_anew(keep=True)
    assert answer.ongoing is None
    await bank.add(answer.producer, P0)


async def test_a_start_that_keeps_nothing_aborts_what_was_prepared(bank: World) -> None:
    """What forceTerminateTransaction does, before and after an instance has claimed it."""
    me = await prepared(bank)
    claimed = await bank.prepare_anew(keep=True)
    answer = await bank.coordinator.init_producer_id(
        transactional_id=ID,
        timeout_ms=60_000,
        expected=None,
        client=OTHER,
        by_administrator=True,
    )
    assert epochs_of_markers(bank) == [(me.producer_id, me.producer_epoch + 1, False)]
    assert answer.producer.producer_epoch == claimed.producer.producer_epoch + 2
    view = bank.coordinator.describe(ID)
    assert view.bump is not None
    assert view.bump.cause is BumpCause.ADMINISTRATOR
    assert "an administrator at 10.0.0.8" in (view.explanation or "")
    with refused(ErrorCode.PRODUCER_FENCED):
        await bank.commit(claimed.producer)


async def test_it_survives_restarts_before_and_after_it_was_claimed(bank: World) -> None:
    me = await prepared(bank)
    await bank.crash()
    answer = await bank.prepare_anew(keep=True)
    assert answer.ongoing == me
    before = bank.transaction
    await bank.crash()
    assert bank.transaction == before
    bank.markers.hold()
    told = await bank.commit(answer.producer)
    await bank.crash()
    bank.markers.release()
    assert await bank.settled() is State.COMPLETE_COMMIT
    assert bank.transaction.current == told
    assert await bank.commit(answer.producer) == told
    assert {m[:2] for m in epochs_of_markers(bank)} == {(me.producer_id, me.producer_epoch + 1)}


async def test_a_claim_that_was_not_written_spends_no_epoch(bank: World) -> None:
    me = await prepared(bank)
    for _ in range(10):
        bank.log.append_errors.append(ErrorCode.NOT_ENOUGH_REPLICAS)
        with refused(ErrorCode.COORDINATOR_NOT_AVAILABLE):
            await bank.prepare_anew(keep=True)
    assert bank.transaction.current == me
    answer = await bank.prepare_anew(keep=True)
    assert answer.producer.producer_epoch == me.producer_epoch + 1


# A transaction with a time-out


async def test_claiming_a_timed_transaction_in_two_phases_lifts_its_time_out(bank: World) -> None:
    """Ours: the driver of a job claims what its tasks have written."""
    me = await prepared(bank, two_phase=False)
    assert bank.coordinator.describe(ID).times_out_in_ms == 60_000
    answer = await bank.prepare_anew(keep=True)
    assert answer.ongoing == me
    assert bank.coordinator.describe(ID).times_out_in_ms is None
    await trio.sleep(24 * 3600)
    await bank.commit(answer.producer)
    assert await bank.settled() is State.COMPLETE_COMMIT


async def test_keeping_without_two_phases_leaves_the_time_out_as_it_is(bank: World) -> None:
    me = await prepared(bank, two_phase=False)
    await trio.sleep(20)
    answer = await bank.prepare_anew(keep=True, two_phase=False)
    assert bank.coordinator.describe(ID).times_out_in_ms == 40_000
    await trio.sleep(41)
    assert await bank.settled() is State.COMPLETE_ABORT
    assert epochs_of_markers(bank) == [(me.producer_id, me.producer_epoch + 1, False)]
    told = answer.producer
    assert bank.transaction.current == producer(told.producer_id, told.producer_epoch + 1)


async def test_nobody_gives_a_prepared_transaction_a_time_out(bank: World) -> None:
    await prepared(bank)
    await bank.prepare_anew(keep=True, two_phase=False)
    assert bank.coordinator.describe(ID).times_out_in_ms is None
    await trio.sleep(24 * 3600)
    assert bank.state is State.ONGOING


# Older clients


@pytest.mark.parametrize("committed", [True, False])
async def test_a_client_of_generation_1_ends_it(bank: World, committed: bool) -> None:
    me = (await bank.prepare_anew()).producer
    await bank.add(me, P0, version=0)
    answer = await bank.prepare_anew(keep=True)
    finish = bank.commit if committed else bank.abort
    assert await finish(answer.producer, version=0) == answer.producer
    await bank.settled()
    assert epochs_of_markers(bank) == [(me.producer_id, me.producer_epoch, committed)]
    assert bank.transaction.current == answer.producer
    assert await finish(answer.producer, version=0) == answer.producer  # the retry


# The end of the epochs


@pytest.mark.parametrize("epoch", [32_764, 32_765, 32_766])
@pytest.mark.parametrize("claims", [1, 2, 3])
async def test_epochs_that_end_while_it_is_kept(
    nursery: trio.Nursery, epoch: int, claims: int
) -> None:
    bank = World(nursery, CONFIG)
    await bank.plant(replace(PREPARED, producer_epoch=epoch))
    seen = [producer(7, epoch)]
    for _ in range(claims):
        answer = await bank.prepare_anew(keep=True)
        assert answer.ongoing == producer(7, epoch)
        seen.append(answer.producer)
    told = await bank.commit(answer.producer)
    seen.append(told)
    await bank.settled()
    assert epochs_of_markers(bank) == [(7, epoch + 1, True)]
    assert bank.transaction.current == told
    assert await bank.commit(answer.producer) == told
    assert len(set(seen)) == len(seen)
    assert all(identity.producer_epoch <= 32_766 for identity in seen)
    ids = [identity.producer_id for identity in seen]
    assert ids == sorted(ids)
    await bank.add(told, P1)
    await bank.commit(told)
    assert await bank.settled() is State.COMPLETE_COMMIT
    bank.stop()


@pytest.mark.parametrize("epoch", [32_765, 32_766])
async def test_epochs_that_end_when_a_kept_transaction_is_fenced(
    nursery: trio.Nursery, epoch: int
) -> None:
    bank = World(nursery, CONFIG)
    await bank.plant(replace(PREPARED, producer_epoch=epoch))
    claimed = await bank.prepare_anew(keep=True)
    successor = await bank.prepare_anew()
    assert epochs_of_markers(bank) == [(7, epoch + 1, False)]
    assert successor.producer.producer_id > 7
    assert successor.producer != claimed.producer
    with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED):
        await bank.commit(claimed.producer)
    bank.stop()
