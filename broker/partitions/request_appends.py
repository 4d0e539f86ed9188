"""The order in which the batches of one request of a producer are checked, admitted and appended.

What is wrong with a request whatever its partitions hold is refused first. Then come some batches
at a time: they get the codec of their topics, which may wait; `admit` lets them into their
transaction; and they are appended with nothing between.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from odradek.broker.environment.env import Clock
from odradek.broker.environment.parallel import for_each
from odradek.broker.environment.turns import Turns
from odradek.broker.partitions.request_batches import (
    NO_RECORDS,
    Batch,
    check_records_of,
    recompress_some,
)
from odradek.broker.partitions.traffic import EXPECTED
from odradek.protocol.errors import ErrorCode, KafkaError

ACKS_ALL: Final = -1
ACKS: Final = frozenset({ACKS_ALL, 0, 1})
UNKNOWN_LOG: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Refusals of an append that are answered without the log start offset. All others have it."""

OWN_DISK_MS: Final = 1_000
"""The least time-out for this broker's own disk: the request's is meant for other replicas."""

Producer = tuple[int, int]
"""A producer id and its epoch."""


async def check_all(
    batches: Sequence[Batch], *, acks: int, transactional_id: str | None, clock: Clock, turns: Turns
) -> Producer | None:
    """Refuse what is wrong with a request whatever its partitions hold.

    Return the producer of its transactional batches, None if there are none. Raises KafkaError,
    which refuses the whole request.
    """
    producer = None
    for batch in batches:
        await turns.take()
        if acks not in ACKS:
            batch.error = batch.error or KafkaError(
                ErrorCode.INVALID_REQUIRED_ACKS, f"acks is 0, 1 or -1 (all), not {acks}."
            )
        if batch.is_transactional:
            producer = _one_producer(transactional_id, batch, producer)
        if batch.leader is not None and batch.leader.log.config.is_compacted:
            await check_records_of(clock, batch, turns)
    return producer


def _one_producer(
    transactional_id: str | None, batch: Batch, before: Producer | None
) -> Producer | None:
    """Return the producer of a transactional batch, which is `before` if that is given.

    Plain batches do not count (KAFKA-14916). Raises KafkaError for a second producer.
    """
    if transactional_id is None:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "A transactional batch came without a transactional id.",
        )
    if batch.error is not None:
        return before
    if before not in (None, batch.producer):
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "One request has transactional batches of several producers.",
        )
    return batch.producer


async def append_all(
    batches: Sequence[Batch],
    *,
    clock: Clock,
    transaction_version: int,
    admit: Callable[[Sequence[Batch]], Awaitable[None]] | None,
    on_appended: Callable[[Sequence[Batch]], None] | None,
) -> None:
    """Append the batches that are not refused, in their order.

    `admit` refuses batches that their transaction does not take. `on_appended` is called after
    each part.
    """
    start = 0
    while start < len(batches):
        if start:
            await trio.lowlevel.checkpoint()
        end = await recompress_some(clock, batches, start)
        some = batches[start:end]
        if admit is not None:
            # invariant admission 3: There is no checkpoint between a verdict and the append. No
            # test fails without this line alone: `admission 2` then refuses the batch.
            await admit(some)
        for batch in some:
            if batch.error is None:
                _append(batch, transaction_version)
            _count(batch)
            if not batch.may_be_named:
                batch.records = NO_RECORDS  # which may be much, if they were compressed anew
        if on_appended is not None:
            on_appended(some)
        start = end


def _append(batch: Batch, transaction_version: int) -> None:
    assert batch.leader is not None
    try:
        if batch.records_error is not None:
            raise batch.records_error
        if batch.by_all:
            batch.leader.check_in_sync()
        batch.appended = batch.leader.append_from_client(
            batch.records,
            transaction_version=transaction_version,
            verified_after=batch.verified_after,
        )
        if not batch.appended.is_duplicate:
            traffic = batch.leader.traffic
            traffic.messages_in += batch.appended.last_offset - batch.appended.base_offset + 1
            traffic.bytes_in += len(batch.records)
    except KafkaError as error:
        batch.error = error.with_traceback(None)
        if error.code not in UNKNOWN_LOG:
            batch.log_start_offset = batch.leader.log.log_start_offset


def _count(batch: Batch) -> None:
    if batch.leader is not None:
        traffic = batch.leader.traffic
        traffic.produce_requests += 1
        if batch.error is not None and batch.error.code not in EXPECTED:
            traffic.failed_produce_requests += 1


def deadline_of(timeout_ms: int, *, since: float) -> float:
    """Return the time of trio's clock until which a request waits for replicas and disk."""
    return since + max(timeout_ms, OWN_DISK_MS) / 1000


def has_outcome(batch: Batch) -> bool:
    """Return True if there is nothing to wait for: it was refused, or it counts already."""
    if batch.appended is None or batch.leader is None:
        return True
    return batch.leader.has_committed(batch.appended, by_all=batch.by_all)


async def wait_for_outcomes(batches: Sequence[Batch], deadline: float, patience_ms: int) -> None:
    appended = [batch for batch in batches if batch.appended is not None]
    with trio.move_on_at(deadline):
        await for_each(appended, _wait_for_outcome)
    for batch in appended:
        if not batch.has_outcome:
            batch.error = KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"Not on disk within {patience_ms} ms; it may still get there.",
            )


async def _wait_for_outcome(batch: Batch) -> None:
    assert batch.leader is not None
    assert batch.appended is not None
    try:
        next_offset = batch.appended.last_offset + 1
        if batch.by_all:
            await batch.leader.wait_committed(next_offset)
        else:
            await batch.leader.maintenance.wait_flushed(next_offset)
    except KafkaError as error:
        batch.error = error.with_traceback(None)
    batch.has_outcome = True
