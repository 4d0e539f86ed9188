"""The errors of transactions that do not end as their program wanted."""

from odradek.client.errors import Aborted, Fatal, OdradekError
from odradek.protocol.errors import ErrorCode


def timed_out(transactional_id: str, timeout_ms: int) -> Aborted:
    """Return the error of a timed-out transaction. Its producer may begin another one."""
    return Aborted(
        f"the broker has aborted the transaction of {transactional_id!r} because it was "
        f"open for longer than transaction_timeout_ms={timeout_ms}; "
        f"do its work again, faster or with a larger limit",
        code=ErrorCode.INVALID_PRODUCER_EPOCH,
    )


def end_unknown(error: OdradekError, *, committed: bool, aborted_after_ms: int | None) -> Fatal:
    """Return the error of a transaction whose end the coordinator did not confirm."""
    if committed:
        left = "whether it was committed is not known"
    elif aborted_after_ms is None:
        left = "it stays open until another producer takes over its transactional id"
    else:
        left = f"the broker aborts it after {aborted_after_ms} ms"
    return Fatal(f"{error}; {left}. Make a new producer.", code=error.code)
