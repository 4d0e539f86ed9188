"""DescribeTransactions, key 65, version 0; ListTransactions, key 66, versions 0-2.

Behaviour: returns the state of the transactional ids that this broker coordinates (KIP-664). An
open transaction is listed with its partitions, a transaction that is being completed with those
that still wait for their marker; `__consumer_offsets` is one of them. A state that does not exist
is returned as unknown; if a filter has no other state, nothing is found. A duration filter leaves
out transactions that began later; an id without a transaction counts as old. A pattern must match
the whole id. An id that is asked for twice is described once.

Versions: ListTransactions 1 filters by duration (KIP-994), 2 by pattern (KIP-1152).

Differs from Kafka:

- Patterns of transactional ids are matched by RE2 itself. Kafka's are matched by its translation to
  Java: each knows some syntax that the other does not. A pattern whose program is too large is
  INVALID_REGULAR_EXPRESSION.
- Tagged fields explain a transaction. They have the client, the cause of the last change of epoch
  and the next deadline.
"""

import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from typing import Final

from odradek.broker.api.context import RequestContext, text_bytes
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.environment.patterns import compiled
from odradek.broker.environment.turns import STEPS_PER_TURN, Turns
from odradek.broker.security.access import EVERYTHING
from odradek.broker.security.rights import DESCRIBE_ID, DESCRIBE_TOPIC
from odradek.broker.txn.transaction import State
from odradek.broker.txn.view import TransactionView
from odradek.protocol.apis.transactions import (
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
    TransactionTopic,
)
from odradek.protocol.errors import ErrorCode, KafkaError

LOGGER: Final = logging.getLogger(__name__)
DESCRIBE_STEPS: Final = 4
LIST_STEPS: Final = 2
"""The cost of one transaction, in steps of a turn."""
LONG: Final = 1_000
"""An id with more characters than this costs a whole turn: matching takes time by length."""
NO_TIME: Final = -1
SHOWN_MAX: Final = 80


async def describe_transactions(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    turns = Turns()
    transactional_ids = await turns.distinct(request.transactional_ids)
    await _expect(context, transactional_ids, turns)
    described = []
    texts_bytes = 0
    for transactional_id in transactional_ids:
        await turns.take(DESCRIBE_STEPS)
        described.append(_describe(context, transactional_id))
        texts_bytes += text_bytes(described[-1].explanation) + text_bytes(described[-1].client_id)
        await turns.take(sum(len(topic.partitions) for topic in described[-1].topics))
    await context.expect(0, extra_bytes=texts_bytes)
    return DescribeTransactionsResponse(transaction_states=tuple(described))


async def _expect(context: RequestContext, transactional_ids: Iterable[str], turns: Turns) -> None:
    """Reserve memory for the partitions of all these transactions."""
    item_count = 0
    for transactional_id in transactional_ids:
        await turns.take(DESCRIBE_STEPS)
        item_count += 1
        # What is refused has one size, whatever is stored.
        if not context.access.shows(DESCRIBE_ID, transactional_id):
            continue
        with suppress(KafkaError):
            view = context.core.transactions.describe(transactional_id)
            item_count += len(view.partitions)
    await context.expect(item_count)


def _describe(context: RequestContext, transactional_id: str) -> TransactionState:
    access = context.access
    try:
        access.check(DESCRIBE_ID, transactional_id)
        view = context.core.transactions.describe(transactional_id)
    except KafkaError as error:
        return TransactionState(
            error_code=error.code,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=(),
        )
    transaction, bump, client = view.transaction, view.bump, view.client
    return TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=view.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=tuple(topic for topic in _topics(view) if access.shows(DESCRIBE_TOPIC, topic.topic)),
        epoch_bump_cause=None if bump is None else str(bump.cause),
        epoch_bump_timestamp_ms=NO_TIME if bump is None else bump.at_ms,
        client_id=None if client is None else client.client_id,
        client_host=None if client is None else client.host,
        times_out_in_ms=NO_TIME if view.times_out_in_ms is None else max(view.times_out_in_ms, 0),
        explanation=view.explanation,
        updated_timestamp_ms=transaction.updated_ms,
        pending_state=None if view.pending_state is None else view.pending_state.label,
    )


def _topics(view: TransactionView) -> Iterator[TransactionTopic]:
    # A topic that was made anew may have the same partition twice, once under each id.
    named = sorted({each.by_name for each in view.partitions})
    for topic, partitions in groupby(named, key=lambda each: each.topic):
        yield TransactionTopic(topic=topic, partitions=tuple(each.partition for each in partitions))


async def list_transactions(
    context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    transactions = context.core.transactions
    if transactions.is_loading:
        return _refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    labels = {state.label for state in State}
    turns = Turns()
    states = await turns.distinct(request.state_filters)
    try:
        wanted = _Filter(request, states)
    except ValueError as error:
        shown = (request.transactional_id_pattern or "")[:SHOWN_MAX]
        LOGGER.debug("no pattern for transactional ids: %r: %s", shown, error)
        return _refusal(ErrorCode.INVALID_REGULAR_EXPRESSION)
    await context.expect(await _shown_count(context, turns))
    listed = []
    ids_bytes = 0
    for view in transactions.transactions():
        await turns.take(STEPS_PER_TURN if len(view.transactional_id) > LONG else LIST_STEPS)
        if wanted.has(view) and context.access.shows(DESCRIBE_ID, view.transactional_id):
            listed.append(_to_listed_transaction(view))
            ids_bytes += text_bytes(view.transactional_id)
    await context.expect(0, extra_bytes=ids_bytes)
    unknown = []
    for state in wanted.states:
        await turns.take()
        if state not in labels:
            unknown.append(state)
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE,
        unknown_state_filters=tuple(unknown),
        transaction_states=tuple(listed),
    )


async def _shown_count(context: RequestContext, turns: Turns) -> int:
    """Return the number of transactional ids that the client may see.

    A large reservation waits or is refused: it must not depend on what is not shown.
    """
    transactions = context.core.transactions
    if context.access is EVERYTHING:
        return transactions.transaction_count
    count = 0
    for view in transactions.transactions():
        await turns.take(LIST_STEPS)
        count += context.access.shows(DESCRIBE_ID, view.transactional_id)
    return count


class _Filter:
    """The filters of a ListTransactions request. Raises ValueError for an invalid pattern."""

    def __init__(self, request: ListTransactionsRequest, states: Collection[str]) -> None:
        self.states = states
        self._producer_ids = frozenset(request.producer_id_filters)
        self._duration_ms = request.duration_filter
        pattern = request.transactional_id_pattern
        self._pattern = compiled(pattern) if pattern else None

    def has(self, view: TransactionView) -> bool:
        if self.states and view.state.label not in self.states:
            return False
        if self._producer_ids and view.transaction.producer_id not in self._producer_ids:
            return False
        if self._duration_ms >= 0 and view.started_ms > view.now_ms - self._duration_ms:
            return False
        return self._pattern is None or bool(self._pattern.fullmatch(view.transactional_id))


def _to_listed_transaction(view: TransactionView) -> ListedTransaction:
    return ListedTransaction(
        transactional_id=view.transactional_id,
        producer_id=view.transaction.producer_id,
        transaction_state=view.state.label,
    )


def _refusal(code: ErrorCode) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        error_code=code, unknown_state_filters=(), transaction_states=()
    )


SERVED: Final = (
    ServedApi(
        DESCRIBE_TRANSACTIONS,
        describe_transactions,
        (
            Need(DESCRIBE_ID),
            Need(DESCRIBE_TOPIC, "to see one of its topics"),
        ),
    ),
    ServedApi(LIST_TRANSACTIONS, list_transactions, (Need(DESCRIBE_ID, "to see one"),)),
)
