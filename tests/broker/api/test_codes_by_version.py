"""Which of the coordinator's refusals each version of Produce is told."""

import pytest

from odradek.broker.api.transactional import produce_code
from odradek.protocol.errors import ErrorCode

E = ErrorCode

# What Produce knew as errors of a partition before TRANSACTION_ABORTABLE
KNOWN_TO_OLD_CLIENTS = {
    E.NOT_ENOUGH_REPLICAS,
    E.INVALID_TXN_STATE,
    E.INVALID_PRODUCER_EPOCH,
    E.INVALID_PRODUCER_ID_MAPPING,
}
COORDINATOR_REFUSALS = [
    E.NETWORK_EXCEPTION,
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR,
    E.CONCURRENT_TRANSACTIONS,
    E.TRANSACTION_ABORTABLE,
    E.PRODUCER_FENCED,
    E.INVALID_PRODUCER_ID_MAPPING,
]


@pytest.mark.parametrize("code", COORDINATOR_REFUSALS, ids=lambda code: code.name)
@pytest.mark.parametrize("version", range(3, 11))
def test_no_error_between_brokers_reaches_an_old_producer(code: ErrorCode, version: int) -> None:
    """KAFKA-16386: NETWORK_EXCEPTION and the like, which no producer had ever been told."""
    assert produce_code(code, version) in KNOWN_TO_OLD_CLIENTS


@pytest.mark.parametrize("version", range(3, 14))
def test_a_coordinator_that_is_not_ready_is_worth_another_try(version: int) -> None:
    for code in (E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR, E.NETWORK_EXCEPTION):
        assert produce_code(code, version) is E.NOT_ENOUGH_REPLICAS


def test_who_knows_it_is_told_to_abort_and_go_on() -> None:
    assert produce_code(E.TRANSACTION_ABORTABLE, 10) is E.INVALID_TXN_STATE
    assert produce_code(E.TRANSACTION_ABORTABLE, 11) is E.TRANSACTION_ABORTABLE


def test_a_transaction_that_is_being_completed_is_no_error_of_the_next_ones_first_batch() -> None:
    """KAFKA-14904, on the old road: retried without asking for metadata."""
    assert produce_code(E.CONCURRENT_TRANSACTIONS, 11) is E.NOT_ENOUGH_REPLICAS
    assert produce_code(E.CONCURRENT_TRANSACTIONS, 12) is E.CONCURRENT_TRANSACTIONS
