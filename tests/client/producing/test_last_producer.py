"""The question whether the id of a failed producer is still this program's, as a table."""

from typing import NamedTuple

import pytest

from odradek.client.producing.batches import NO_PRODUCER, ProducerIdentity
from odradek.client.producing.last_producer import LastProducer, is_free
from odradek.protocol.apis.transactions import TransactionState
from odradek.protocol.errors import ErrorCode

FENCED = ErrorCode.PRODUCER_FENCED
ENDED = ErrorCode.INVALID_TXN_STATE


class Case(NamedTuple):
    """What the coordinator returns after the failure of a producer with the epoch 5."""

    state: str
    epoch: int
    free: bool
    cause: str | None = None
    was_open: bool = True
    code: ErrorCode = FENCED
    producer_id: int = 7


CASES = {
    # Apache Kafka, which returns no cause
    "time-out": Case("CompleteAbort", 6, free=True),
    "a successor that aborted it": Case("Empty", 7, free=False),
    "a successor": Case("Empty", 6, free=False, was_open=False),
    "open transaction of a successor": Case("Ongoing", 6, free=False, was_open=False),
    "commit of a successor": Case("CompleteCommit", 6, free=False, was_open=False),
    "abort of a successor": Case("CompleteAbort", 6, free=False, was_open=False),
    "abort of a successor later": Case("CompleteAbort", 7, free=False),
    "committed after all": Case("CompleteCommit", 6, free=True, code=ENDED),
    "another producer id": Case("CompleteAbort", 6, free=False, producer_id=8),
    # Odradek
    "time-out, with its cause": Case("CompleteAbort", 6, free=True, cause="timeout"),
    "administrator": Case("CompleteAbort", 7, free=True, cause="administrator"),
    "new instance": Case("CompleteAbort", 6, free=False, cause="new instance"),
    "time-out of a successor": Case("CompleteAbort", 7, free=False, cause="timeout"),
}


@pytest.mark.parametrize("case", CASES)
def test_an_id_is_free_only_if_no_successor_has_it(case: str) -> None:
    """On Kafka 3, a pool fenced a successor back whose transaction the successor had aborted."""
    state, epoch, free, cause, was_open, code, producer_id = CASES[case]
    found = TransactionState(
        error_code=0,
        transactional_id="pool-0",
        transaction_state=state,
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=0,
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=(),
        epoch_bump_cause=cause,
    )
    last = LastProducer(ProducerIdentity(7, 5), was_open=was_open)
    assert is_free(found, last, code) == (free, ProducerIdentity(producer_id, epoch))


def test_an_id_that_has_expired_is_free() -> None:
    last = LastProducer(ProducerIdentity(7, 5), was_open=False)
    assert is_free(None, last, ErrorCode.INVALID_PRODUCER_ID_MAPPING) == (True, NO_PRODUCER)
