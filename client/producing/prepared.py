"""Two-phase commit (KIP-939): what a transaction that is prepared leaves behind for its end.

A transaction of ours takes part in one of somebody else's, a database's say. Both must end alike,
whoever is killed in between:

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

The database decides. If its transaction was committed, it holds the state that `prepare` gave, and
`complete` commits what the broker has kept; else it holds an older one, and `complete` aborts.
Between `prepare` and the end nothing may be sent, nothing times out, and an exception decides
nothing: only `commit`, `abort` or `complete` do.

Whoever completes must know what the database has decided, for good. If an instance before may still
be at work there, end its database transaction first, or read the row with a lock: what it commits
after `complete` has aborted is torn.

The broker must serve it: `transaction.two.phase.commit.enable`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class Completion(StrEnum):
    """What `Producer.complete` found and did."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    NOTHING = "nothing was open"


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """Which transaction was prepared. As text `producer id:epoch`, as Kafka's clients write it."""

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """What `str` made. Raises ValueError for anything else."""
        producer_id, colon, epoch = text.partition(":")
        if not (colon and _is_number(producer_id, 63) and _is_number(epoch, 15)):
            raise ValueError(f"a prepared transaction is PRODUCER_ID:EPOCH, and {text!r} is not")
        return cls(int(producer_id), int(epoch))


def _is_number(text: str, bits: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**bits
