"""The fields that each transition changes: epochs, producer ids, times, explanations."""

from dataclasses import replace

import pytest

from odradek.broker.txn import state
from odradek.broker.txn.events import Answer, Event, StepRequest, end_event, init_event
from odradek.broker.txn.moves import Move
from odradek.broker.txn.transaction import BumpCause, EpochBump, State, TransactionMetadata
from tests.broker.txn.world import CLIENT, OTHER, P0, P1, producer

NOW = 5_000
FRESH = 900


def a_transaction(**fields: object) -> TransactionMetadata:
    plain = TransactionMetadata(
        producer_id=7,
        producer_epoch=5,
        last_producer_epoch=-1,
        previous_producer_id=7,
        timeout_ms=60_000,
        started_ms=-1,
        updated_ms=1_000,
        client=CLIENT,
    )
    return replace(plain, **fields)  # type: ignore[arg-type]


ONGOING = a_transaction(state=State.ONGOING, partitions=frozenset({P0}), started_ms=2_000)


def go(
    before: TransactionMetadata, event: Event, version: int = 2, **fields: object
) -> TransactionMetadata:
    """One step out of the table; a fence with both halves."""
    plain = StepRequest(event=event, now_ms=NOW, transaction_version=version, client=CLIENT)
    request = replace(plain, **fields)  # type: ignore[arg-type]
    cell = state.decide(before, event, version)
    assert isinstance(cell, Move), cell
    if state.needs_producer_id(before, cell):
        request = replace(request, producer_id=FRESH)
    after = state.step(before, cell, request)
    if after.state is State.PREPARE_EPOCH_FENCE:
        return go(after, Event.ABORT_FENCED, client=None)
    return after


def told(transaction: TransactionMetadata) -> tuple[int, int]:
    return transaction.assigned_producer.producer_id, transaction.assigned_producer.producer_epoch


def test_a_first_init_gives_epoch_0() -> None:
    unused = a_transaction(producer_epoch=-1, previous_producer_id=-1, client=None)
    assert init_event(unused, producer(3, 3)) is Event.INIT_NEW  # whatever is expected
    after = go(unused, Event.INIT_NEW, timeout_ms=10)
    assert told(after) == (7, 0)
    assert (after.last_producer_epoch, after.timeout_ms, after.client) == (-1, 10, CLIENT)
    assert after.bump is None


def test_a_new_instance_gets_the_next_epoch_and_its_predecessor_no_retry() -> None:
    after = go(a_transaction(last_producer_epoch=4), Event.INIT_NEW, client=OTHER, timeout_ms=10)
    assert told(after) == (7, 6)
    assert after.last_producer_epoch == -1
    assert after.bump == EpochBump(cause=BumpCause.NEW_INSTANCE, at_ms=NOW)
    assert (after.client, after.timeout_ms, after.updated_ms) == (OTHER, 10, NOW)


def test_an_instance_that_goes_on_may_ask_again_for_the_same_epoch() -> None:
    after = go(a_transaction(), Event.INIT_CURRENT)
    assert told(after) == (7, 6)
    assert init_event(after, producer(7, 5)) is Event.INIT_LAST
    again = go(after, Event.INIT_LAST)
    assert told(again) == (7, 6)
    assert init_event(again, producer(7, 5)) is Event.INIT_LAST


def test_the_first_partition_starts_the_clock_and_further_ones_do_not() -> None:
    first = go(a_transaction(), Event.ADD, partitions=frozenset({P0}))
    assert (first.state, first.started_ms, first.partitions) == (
        State.ONGOING,
        NOW,
        frozenset({P0}),
    )
    second = go(ONGOING, Event.ADD, partitions=frozenset({P1}))
    assert (second.started_ms, second.partitions) == (2_000, frozenset({P0, P1}))
    complete = a_transaction(state=State.COMPLETE_ABORT, started_ms=2_000)
    assert go(complete, Event.ADD, partitions=frozenset({P0})).started_ms == NOW


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("event", [Event.COMMIT, Event.ABORT])
def test_the_end_of_an_old_clients_transaction_keeps_the_epoch(event: Event, version: int) -> None:
    prepared = go(ONGOING, event, version)
    assert told(prepared) == (7, 5)
    assert prepared.partitions == {P0}
    complete = go(prepared, Event.MARKED)
    assert told(complete) == (7, 5)
    assert (complete.partitions, complete.started_ms) == (frozenset(), 2_000)
    assert complete.transaction_version == version


@pytest.mark.parametrize("event", [Event.COMMIT, Event.ABORT])
def test_the_end_of_a_transaction_of_generation_2_spends_an_epoch(event: Event) -> None:
    prepared = go(ONGOING, event)
    assert (prepared.producer_epoch, prepared.last_producer_epoch) == (6, 5)
    assert told(prepared) == (7, 6)
    assert prepared.bump is None
    complete = go(prepared, Event.MARKED)
    assert told(complete) == (7, 6)
    # KIP-360's retry works across it, as with Kafka.
    assert init_event(complete, producer(7, 5)) is Event.INIT_LAST


@pytest.mark.parametrize("current", [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_an_abort_without_a_transaction_spends_an_epoch(current: State) -> None:
    prepared = go(a_transaction(state=current), Event.ABORT)
    assert (prepared.state, prepared.partitions) == (State.PREPARE_ABORT, frozenset())
    assert (prepared.producer_epoch, prepared.started_ms) == (6, NOW)


def test_a_fence_spends_one_epoch_and_the_fenced_client_may_learn_of_it() -> None:
    """KAFKA-19367: e + 1, not e + 2. A time-out does not lock the client out for good."""
    aborted = go(ONGOING, Event.FENCE, cause=BumpCause.TIMEOUT, client=None)
    assert (aborted.state, aborted.producer_epoch) == (State.PREPARE_ABORT, 6)
    assert aborted.transaction_version == 2
    assert aborted.bump == EpochBump(cause=BumpCause.TIMEOUT, at_ms=NOW)
    assert aborted.client == CLIENT
    complete = go(aborted, Event.MARKED)
    assert init_event(complete, producer(7, 5)) is Event.INIT_LAST
    assert end_event(complete, producer(7, 5), 2, committed=False) is Event.ABORT_RETRY
    assert end_event(complete, producer(7, 5), 0, committed=False) is Event.END_STALE


def test_a_fence_by_a_new_instance_names_it() -> None:
    aborted = go(ONGOING, Event.INIT_NEW, cause=BumpCause.NEW_INSTANCE, client=OTHER)
    assert aborted.bump is not None
    assert (aborted.bump.cause, aborted.client) == (BumpCause.NEW_INSTANCE, OTHER)


@pytest.mark.parametrize("current", [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_init_after_the_last_epoch_takes_a_new_producer_id(current: State) -> None:
    """KAFKA-5283: an epoch never wraps."""
    used_up = a_transaction(state=current, producer_epoch=32_766)
    anew = go(used_up, Event.INIT_NEW)
    assert told(anew) == (FRESH, 0)
    assert (anew.previous_producer_id, anew.last_producer_epoch) == (7, -1)
    going_on = go(used_up, Event.INIT_CURRENT)
    assert told(going_on) == (FRESH, 0)
    # The answer was lost: the old identity still leads to the new one, and no further.
    assert init_event(going_on, producer(7, 32_766)) is Event.INIT_LAST
    assert told(go(going_on, Event.INIT_LAST)) == (FRESH, 0)
    assert init_event(going_on, producer(7, 32_765)) is Event.INIT_FOREIGN
    assert init_event(anew, producer(7, 32_766)) is Event.INIT_STALE


@pytest.mark.parametrize("committed", [True, False])
def test_an_end_after_the_last_epoch_takes_a_new_producer_id(committed: bool) -> None:
    """KAFKA-18660, KAFKA-20090: told at once, current with Complete*, markers under the old id."""
    used_up = replace(ONGOING, producer_epoch=32_766)
    prepared = go(used_up, Event.COMMIT if committed else Event.ABORT)
    assert (prepared.producer_id, prepared.producer_epoch) == (7, 32_767)
    assert prepared.next_producer_id == FRESH
    assert told(prepared) == (FRESH, 0)
    complete = go(prepared, Event.MARKED)
    assert told(complete) == (FRESH, 0)
    assert (complete.previous_producer_id, complete.next_producer_id) == (7, -1)
    assert complete.bump == EpochBump(cause=BumpCause.EXHAUSTED, at_ms=NOW)
    # A retry that names the old identity is known, before and after the change.
    retry = Event.COMMIT_RETRY if committed else Event.ABORT_RETRY
    for now in (prepared, complete):
        assert end_event(now, producer(7, 32_766), 2, committed=committed) is retry
    assert state.decide(complete, retry, 2) is Answer.DONE
    # The next transaction forgets the old identity.
    following = go(complete, Event.ADD, partitions=frozenset({P0}))
    event = end_event(following, producer(7, 32_766), 2, committed=committed)
    assert event is Event.END_FOREIGN


def test_a_fence_after_the_last_epoch_uses_the_one_that_was_kept_for_it() -> None:
    """KAFKA-19367 made 32,767 + 1 negative; KAFKA-20090 left the id there for good."""
    used_up = replace(ONGOING, producer_epoch=32_766)
    aborted = go(used_up, Event.FENCE, cause=BumpCause.TIMEOUT)
    assert (aborted.producer_epoch, aborted.next_producer_id) == (32_767, FRESH)
    assert aborted.bump is not None
    assert aborted.bump.cause is BumpCause.TIMEOUT
    assert told(go(aborted, Event.MARKED)) == (FRESH, 0)


@pytest.mark.parametrize("event", [Event.COMMIT, Event.ABORT, Event.INIT_NEW])
def test_what_an_older_kafka_left_at_32767_recovers(event: Event) -> None:
    stuck = replace(ONGOING, producer_epoch=32_767)
    prepared = go(stuck, event, cause=BumpCause.NEW_INSTANCE)
    assert prepared.producer_epoch == 32_767
    assert told(go(prepared, Event.MARKED)) == (FRESH, 0)


def test_no_epoch_is_spent_by_old_clients_at_the_limit() -> None:
    used_up = replace(ONGOING, producer_epoch=32_766)
    cell = state.decide(used_up, Event.COMMIT, 0)
    assert isinstance(cell, Move)
    assert not state.needs_producer_id(used_up, cell)
    assert told(go(used_up, Event.COMMIT, 0)) == (7, 32_766)


def test_a_retry_in_the_overflow_form_counts_only_after_the_end() -> None:
    rotated = a_transaction(
        producer_id=FRESH, producer_epoch=0, previous_producer_id=7, transaction_version=2
    )
    event = end_event(rotated, producer(7, 32_766), 2, committed=True)
    assert state.decide(rotated, event, 2) is Answer.FENCED
    ongoing = replace(rotated, state=State.ONGOING)
    assert state.decide(ongoing, event, 2) is Answer.FENCED
    complete = replace(rotated, state=State.COMPLETE_COMMIT)
    assert state.decide(complete, event, 2) is Answer.DONE


def test_every_change_remembers_the_producer_id_before_it() -> None:
    rotated = go(a_transaction(producer_epoch=32_766), Event.INIT_NEW)
    assert rotated.previous_producer_id == 7
    assert go(rotated, Event.ADD, partitions=frozenset({P0})).previous_producer_id == FRESH
