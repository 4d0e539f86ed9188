"""A producer's transaction: begin and end.

InitProducerId, key 22, versions 0-5, and 6 where transaction.two.phase.commit.enable is set;
EndTxn, key 26, versions 0-5.

Behaviour: calls the transaction coordinator and translates its refusals to the codes of the
version. EndTxn is answered when the decision is on disk; the markers follow.

Versions: PRODUCER_FENCED is known from InitProducerId 4 and EndTxn 2; older versions get
INVALID_PRODUCER_EPOCH. TRANSACTION_ABORTABLE is known from InitProducerId 5 and EndTxn 4.
InitProducerId 3 carries the producer id and epoch that the client has (KIP-360); 6 may ask for
transactions without time-out, and for an open transaction to be kept (KIP-939). EndTxn 5 means
transaction version 2 and answers with the next producer id and epoch.

Our own tags of EndTxn 5, `members` and `decision_id`, end the transactions of a group by one
decision. The answer has the members' next identities, or the member that was refused and why.

Differs from Kafka:

- The broker waits instead of refusing. Kafka answers CONCURRENT_TRANSACTIONS at once, and the
  client retries 20 to 100 ms later. Odradek waits for the step that is under way, for at most
  `transaction.concurrent.wait.ms` (1 s). Short transactions in sequence pay no back-off.
- Deadlines instead of scans. A transaction is aborted when its time-out is over. Kafka scans for
  expired transactions every 10 s. Kafka's two clean-up intervals are accepted and have no effect.
- Retried EndTxn. A TV2 retry of EndTxn succeeds only if the transaction that it repeats was ended
  by TV2. Otherwise the epoch before the current one is that of an older instance, which was fenced.
  Kafka can acknowledge a commit there although it aborted the transaction, and returns the newest
  instance's epoch.
- The answer with the last epoch may be lost. InitProducerId that asks again for epoch 32,766 with
  the epoch before gets the same answer again. Kafka answers UNKNOWN_SERVER_ERROR, and the producer
  cannot go on.
- Markers that a partition refuses. If an administrator wrote a marker with a higher epoch, the
  partition refuses the coordinator's marker, and Kafka keeps the transactional id in PrepareCommit
  or PrepareAbort until the coordinator is loaded again. Odradek checks that no other coordinator
  has the id, logs the case, and finishes. A partition whose transaction the other marker has
  already ended is skipped and named in an error line of the log. With our own tag
  `without_markers`, EndTxn ends a decided transaction although partitions do not take its markers.
- Topics made anew. A transaction that wrote to a topic which was deleted, and made anew under its
  name, owes the new one nothing: it gets no marker, and Kafka writes one. What is written to the
  new topic in the same transaction is in it: TV2 adds the partition anew. A client of an earlier
  version that has added it before gets TRANSACTION_ABORTABLE (INVALID_TXN_STATE before Produce 11),
  where Kafka takes the records.
- Bounds. A partition remembers `max.producers.per.partition` producers, and a broker transactional
  ids of `transactional.ids.max.bytes`. At the bound the longest idle is forgotten early; if all
  have open transactions, a new one gets NOT_ENOUGH_REPLICAS (Produce) or
  COORDINATOR_LOAD_IN_PROGRESS (InitProducerId) and tries again. The partitions of transactions
  count among the ids: where there is no room, another one is refused in the same way
  (AddPartitionsToTxn, AddOffsetsToTxn, Produce, TxnOffsetCommit). Kafka forgets by time only.
- Braces in transactional ids. An id such as `{orders}.task-7` is a member of the transaction group
  `orders` ([transactions.md](transactions.md#transaction-groups)): its coordinator is the one of
  `orders`, it shares the clock of the group, its producer may disconnect, and it is forgotten after
  an hour without use (`transaction.group.id.expiration.ms`), also by partitions. Its producer id is
  10^15 or more. The feature `transaction.groups` says so.
- Prepared transactions can be kept. InitProducerId with KeepPreparedTxn is served, also for a
  transaction with a time-out. Kafka 4.3 answers UNSUPPORTED_VERSION.
- Two-phase commit can be turned on while the broker runs. Connections that were opened before
  `transaction.two.phase.commit.enable` was changed keep InitProducerId 5.
- The cause of a fence is recorded. Kafka's forceTerminateTransaction is a plain InitProducerId,
  which looks like that of a new instance. Our own tag `by_administrator` tells them apart.
"""

from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.api.transactional import (
    code_for,
    producer_of,
)
from odradek.broker.environment.turns import Turns
from odradek.broker.security.rights import IDEMPOTENT_WRITE, TWO_PHASE_COMMIT, WRITE_ID, WRITE_TOPIC
from odradek.broker.txn.transaction import ProducerIdAndEpoch
from odradek.broker.txn.transaction_group import MemberRefused, TransactionMember
from odradek.protocol.apis.txn import (
    END_TXN,
    INIT_PRODUCER_ID,
    EndedTxnMember,
    EndTxnMember,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.state_topics import (
    TRANSACTION_STATE_TOPIC,
)

NO_PRODUCER: Final = -1
VERSION_2_FROM: Final = 5
"""EndTxn from this version on comes from clients of transaction version 2."""


async def init_producer_id(
    context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    try:
        _check_may_begin(context, request)
        if request.transactional_id is not None:
            await context.core.cluster.ensure_state_topic(TRANSACTION_STATE_TOPIC)
        answer = await context.core.transactions.init_producer_id(
            transactional_id=request.transactional_id,
            timeout_ms=request.transaction_timeout_ms,
            expected=_expected_producer(request),
            client=context.client,
            two_phase=request.enable2_pc,
            keep_prepared=request.keep_prepared_txn,
            by_administrator=request.by_administrator,
            without_markers=request.without_markers,
        )
    except KafkaError as error:
        code = code_for(error, context.api_version, fenced_from=4, abortable_from=5)
        return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER)
    producer, ongoing = answer.producer, answer.ongoing
    if request.transactional_id is not None:
        context.note_served(request.transactional_id, producer, begins=True)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        ongoing_txn_producer_id=ongoing.producer_id if ongoing else NO_PRODUCER,
        ongoing_txn_producer_epoch=ongoing.producer_epoch if ongoing else NO_PRODUCER,
    )


def _check_may_begin(context: RequestContext, request: InitProducerIdRequest) -> None:
    """Raise KafkaError unless the client may use the transactional id, or write anywhere."""
    access, transactional_id = context.access, request.transactional_id
    if transactional_id is not None:
        access.check(WRITE_ID, transactional_id)
        if request.enable2_pc:
            access.check(TWO_PHASE_COMMIT, transactional_id)
    elif not access.allows_some(WRITE_TOPIC):
        access.check_cluster(IDEMPOTENT_WRITE)


def _expected_producer(request: InitProducerIdRequest) -> ProducerIdAndEpoch | None:
    """Return the producer id and epoch that the client has (KIP-360); None if it has none."""
    has_id = request.producer_id != NO_PRODUCER
    if has_id != (request.producer_epoch != NO_PRODUCER):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "A producer id and its epoch come together or not at all."
        )
    return producer_of(request) if has_id else None


async def end_txn(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    if request.members:
        return await _end_group(context, request)
    try:
        context.access.check(WRITE_ID, request.transactional_id)
        producer = await context.core.transactions.end_transaction(
            transactional_id=request.transactional_id,
            producer=producer_of(request),
            committed=request.committed,
            transaction_version=2 if context.api_version >= VERSION_2_FROM else 0,
            client=context.client,
        )
    except KafkaError as error:
        code = code_for(error, context.api_version, fenced_from=2, abortable_from=4)
        return EndTxnResponse(error_code=code)
    context.note_served(request.transactional_id, producer)
    return EndTxnResponse(
        error_code=ErrorCode.NONE,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
    )


async def _end_group(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    turns = Turns()
    try:
        if request.producer_id != NO_PRODUCER or request.producer_epoch != NO_PRODUCER:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "an EndTxn that lists members has producer id -1 and epoch -1",
            )
        # invariant authorization 6: Who ends the transactions of a group may use the id of every
        # member, and is refused before any of them is touched.
        # plant only the first member of a transaction group is asked about
        for member in request.members:
            await turns.take()
            context.access.check(WRITE_ID, member.transactional_id)
        identities = await context.core.transactions.end_group(
            await turns.map(_member, request.members),
            committed=request.committed,
            decision_id=request.decision_id,
            client=context.client,
        )
    except KafkaError as error:
        return EndTxnResponse(
            error_code=error.code,
            refused_member=error.transactional_id if isinstance(error, MemberRefused) else None,
            error_message=error.message,
        )
    ended = await turns.map(_to_ended_member, identities)
    return EndTxnResponse(
        error_code=ErrorCode.NONE,
        producer_id=ended[0].producer_id,
        producer_epoch=ended[0].producer_epoch,
        members=tuple(ended),
    )


def _member(member: EndTxnMember) -> TransactionMember:
    return TransactionMember(transactional_id=member.transactional_id, producer=producer_of(member))


def _to_ended_member(producer: ProducerIdAndEpoch | None) -> EndedTxnMember:
    if producer is None:
        return EndedTxnMember()
    return EndedTxnMember(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)


SERVED: Final = (
    ServedApi(
        INIT_PRODUCER_ID,
        init_producer_id,
        (
            Need(WRITE_ID, "with a transactional id"),
            Need(TWO_PHASE_COMMIT, "for transactions without time-out"),
            Need(WRITE_TOPIC, "of some topic, without a transactional id"),
            Need(IDEMPOTENT_WRITE, "instead of that"),
        ),
    ),
    ServedApi(END_TXN, end_txn, (Need(WRITE_ID, "of every member of a group"),)),
)
