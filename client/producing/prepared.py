"""Two-phase commit (KIP-939): the values that a prepared transaction leaves for its end.

A transaction here takes part in a transaction of another system, such as a database. Both must end
the same way, even if a process is killed in between:

    async with Producer(
        address, transactional_id="orders-1", two_phase_commit=True, keep_prepared=True
    ) as producer:
        await producer.complete(PreparedTransaction.parse(row) if row else None)
        async with producer.transaction() as txn:
            await txn.send("orders", ...)
            prepared = await txn.prepare()
            # in the database's own transaction, beside its own changes:
            #     UPDATE kafka SET prepared = str(prepared)
            await txn.commit()

The database decides. If its transaction was committed, the row has the state that `prepare`
returned, and `complete` commits the transaction that the broker has kept. Otherwise the row has an
older state, and `complete` aborts. Between `prepare` and the end nothing may be sent and nothing
times out. An exception does not end the transaction; only `commit`, `abort` and `complete` do.

The program that calls `complete` must know the final decision of the database. If an earlier
instance may still have a database transaction open, end that first, or read the row with a lock.
Otherwise the earlier instance may commit there after `complete` has aborted here.

The broker needs the setting `transaction.two.phase.commit.enable`.
"""

from enum import StrEnum
from typing import Self

from odradek.late import dataclass


class Completion(StrEnum):
    """The result of `Producer.complete`."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    NOTHING = "nothing was open"


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """The identity of a prepared transaction. Its text is `producer id:epoch`, as in Kafka."""

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text that `str` returns. Raises ValueError for any other text."""
        producer_id, colon, epoch = text.partition(":")
        if not (colon and _is_number(producer_id, 63) and _is_number(epoch, 15)):
            raise ValueError(f"a prepared transaction is PRODUCER_ID:EPOCH, and {text!r} is not")
        return cls(int(producer_id), int(epoch))


def _is_number(text: str, bits: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**bits
