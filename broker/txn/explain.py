"""Sentences about fenced producers, for error messages, log lines and descriptions."""

from odradek.broker.txn.transaction import BumpCause, ProducerIdAndEpoch, State, TransactionMetadata
from odradek.broker.values.client_identity import ClientIdentity
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import ErrorCode


def why_locked_out(transactional_id: str, transaction: TransactionMetadata, now_ms: int) -> str:
    """Return one sentence about the last change that fenced a producer."""
    bump = transaction.bump
    if bump is None:
        producer_id, epoch = transaction.producer_id, transaction.producer_epoch
        return f"{transactional_id!r} has producer id {producer_id} and epoch {epoch}"
    reason = _reason(bump.cause, transaction)
    return f"{transactional_id!r} was fenced: {reason} {_ago(bump.at_ms, now_ms)} ago"


def has_fenced(before: TransactionMetadata, after: TransactionMetadata) -> bool:
    """Return True if the change from `before` to `after` fenced a producer that may still run."""
    if after.bump is None or after.bump is before.bump:
        return False
    # A client that starts anew with nothing open has ended its earlier instance itself, as a Spark
    # query does with every micro-batch: that is not worth a line. If the earlier instance still
    # runs, the refusal of its next request is logged, with the reason.
    is_same = before.client is not None and before.client == after.client
    return not (
        is_same and before.state is not State.ONGOING and _is_new_instance(after.bump.cause)
    )


def what_happened(
    transactional_id: str, before: TransactionMetadata, after: TransactionMetadata, now_ms: int
) -> str | None:
    """Return the line for the log if the change from `before` to `after` fenced a producer."""
    if after.bump is None or not has_fenced(before, after):
        return None
    if after.bump.cause is BumpCause.EXHAUSTED:
        old, new = before.producer_id, after.assigned_producer.producer_id
        return f"{transactional_id!r} used up the epochs of producer id {old} and is {new} now"
    line = f"{transactional_id!r} was fenced: {_reason(after.bump.cause, after)}"
    if before.state is not State.ONGOING:
        return line
    count = len(before.partitions)
    fate = "kept open for it to end" if after.state is State.ONGOING else "aborted"
    return (
        f"{line}; {fate}: producer id {before.producer_id}, epoch {before.producer_epoch}, "
        f"{count} partition{'' if count == 1 else 's'}, open for {_ago(before.started_ms, now_ms)}"
    )


def refusal_line(what: str, client: ClientIdentity, why: str) -> str:
    """Return the line for the log about a refused request."""
    return f"{what} of {_name_of(client)} was refused: {why}"


def marked_by_hand(
    owner: str | None,
    partition: TopicPartition,
    producer: ProducerIdAndEpoch,
    committed: bool,
    code: ErrorCode,
    client: ClientIdentity,
) -> str:
    """Return the line for the log about a marker that an administrator sent."""
    marker = "COMMIT" if committed else "ABORT"
    whose = f"{owner!r}" if owner is not None else "no transactional id that is coordinated here"
    outcome = "" if code is ErrorCode.NONE else f", and {partition} refused it: {code.name}"
    return (
        f"an administrator at {_name_of(client)} sent {partition} the marker {marker} for producer "
        f"id {producer.producer_id} with epoch {producer.producer_epoch}, which belongs to {whose}"
        f"{outcome}"
    )


def _reason(cause: BumpCause, transaction: TransactionMetadata) -> str:
    match cause:
        case BumpCause.NEW_INSTANCE:
            return f"a new instance from {_name_of(transaction.client)} started"
        case BumpCause.TIMEOUT:
            limit_ms = transaction.timeout_ms
            return (
                f"its transaction was open for longer than its time-out, {limit_ms} ms, and ended"
            )
        case BumpCause.ADMINISTRATOR:
            return f"an administrator at {_name_of(transaction.client)} took its id"
        case BumpCause.EXHAUSTED:
            return "its epochs were used up, and another producer id took over"
        case BumpCause.DISCONNECTED:
            return f"{_name_of(transaction.client)} closed its last connection"
        case BumpCause.RESUMED:
            return f"{_name_of(transaction.client)} asked for a new epoch"


def _is_new_instance(cause: BumpCause) -> bool:
    return cause in (BumpCause.NEW_INSTANCE, BumpCause.RESUMED)


def _name_of(client: ClientIdentity | None) -> str:
    return f"{client.host} as {client.client_id!r}" if client else "an unknown address"


def _ago(then_ms: int, now_ms: int) -> str:
    """Return the time since `then_ms` as text."""
    # The wall clock may step back: a negative span would be printed otherwise.
    seconds = max(now_ms - then_ms, 0) / 1000
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
