"""Why a producer was locked out, in words: for error messages, log lines and whoever asks later."""

from odradek.broker.txn.transaction import BumpCause, ClientIdentity, Transaction


def name_of(client: ClientIdentity | None) -> str:
    return f"{client.host} as {client.client_id!r}" if client else "an unknown address"


def ago(then_ms: int, now_ms: int) -> str:
    """How long ago: "1.2 s". Clocks may step back; nothing is younger than now."""
    seconds = max(now_ms - then_ms, 0) / 1000
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 60:.0f} min"


def why_locked_out(transactional_id: str, transaction: Transaction, now_ms: int) -> str:
    """One sentence about the last epoch change that locked a producer out."""
    bump = transaction.bump
    if bump is None:
        producer_id, epoch = transaction.producer_id, transaction.producer_epoch
        return f"{transactional_id!r} is producer id {producer_id} with epoch {epoch} now"
    when = ago(bump.at_ms, now_ms)
    match bump.cause:
        case BumpCause.NEW_INSTANCE:
            client = name_of(transaction.client)
            return (
                f"{transactional_id!r} was fenced: a new instance from {client} started {when} ago"
            )
        case BumpCause.TIMEOUT:
            return (
                f"{transactional_id!r} had a transaction open for longer than its time-out of "
                f"{transaction.timeout_ms} ms: it was aborted {when} ago"
            )
        case BumpCause.ADMINISTRATOR:
            return f"{transactional_id!r} had its transaction ended by an administrator {when} ago"
        case BumpCause.EXHAUSTED:
            return f"{transactional_id!r} used up its epochs and got a new producer id {when} ago"
        case BumpCause.RESUMED:
            client = name_of(transaction.client)
            return f"{transactional_id!r} asked for a new epoch from {client} {when} ago"


def what_is_aborted(transaction: Transaction, now_ms: int) -> str:
    return (
        f"its transaction (producer id {transaction.producer_id}, epoch "
        f"{transaction.producer_epoch}, {len(transaction.partitions)} partitions, begun "
        f"{ago(transaction.started_ms, now_ms)} ago) is aborted"
    )
