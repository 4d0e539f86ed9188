"""The question whether the id of a producer that has failed is still this program's.

A pool goes on with the id of a failed producer unless another instance has taken it over. The
coordinator has refused an abort under the failed producer's epoch, and DescribeTransactions has
returned what it knows of the id. Odradek returns why the epoch went up. Apache Kafka does not, and
there the epoch and the state must say it:

    Ongoing, epoch e      this program's transaction is open
    CompleteAbort, e + 1  it was aborted because of its age: this program goes on
    Empty, e + 2          a successor has aborted it, and has started

If the coordinator had nothing of the transaction, a successor has e + 1 after its start. With TV1
it keeps that epoch, so a transaction that it aborts looks like one of this program that timed out.
"""

from typing import Final, NamedTuple

from odradek.client.producing.batches import NO_PRODUCER, ProducerIdentity
from odradek.protocol.apis.transactions import TransactionState
from odradek.protocol.errors import ErrorCode

WITHOUT_SUCCESSOR: Final = {"timeout": 1, "connection closed": 1, "administrator": 2}
"""How often an epoch goes up without a successor, by the causes that Odradek returns."""


class LastProducer(NamedTuple):
    """A producer of this program that has failed."""

    identity: ProducerIdentity
    was_open: bool
    """The coordinator certainly had its transaction: a record of it was stored."""


def is_free(
    found: TransactionState | None, last: LastProducer, code: ErrorCode
) -> tuple[bool, ProducerIdentity]:
    """Return True if no successor of `last` has the id, and the identity to go on from.

    `code` is the answer to the abort of `last`. The epoch goes up once for a time-out, and twice
    for an administrator who aborts; a successor in between would have raised it more.
    """
    if found is None:
        return True, NO_PRODUCER  # the id has expired, so nobody has it
    now = ProducerIdentity(found.producer_id, found.producer_epoch)
    if code is ErrorCode.INVALID_TXN_STATE:  # the epoch is right, which is compared first
        return True, now
    if found.epoch_bump_cause is None:
        bumps = 1 if last.was_open and found.transaction_state == "CompleteAbort" else 0
    else:
        bumps = WITHOUT_SUCCESSOR.get(found.epoch_bump_cause, 0)
    producer_id, epoch = last.identity
    is_same = now.producer_id == producer_id
    # invariant client 5
    return is_same and epoch < now.epoch <= epoch + bumps, now
