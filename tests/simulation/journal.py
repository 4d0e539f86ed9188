"""What the clients of a simulation did, in order. `tests/checker` judges it."""

from dataclasses import dataclass, field, replace
from typing import Any

import trio

from odradek.client import TopicPartition
from tests.checker.history import Found, Outcome, Partition, Poll, Transaction


@dataclass
class Journal:
    """What the clients did, in order."""

    transactions: list[Transaction] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)

    def begin(self, process: str) -> int:
        """Note a new transaction, in doubt until `end`. Return its number."""
        begun = Transaction(
            process=process,
            outcome=Outcome.INFO,
            sends=[],
            acknowledged={},
            polled={},
            started=trio.current_time(),
            commit_asked=float("inf"),
        )
        self.transactions.append(begun)
        return len(self.transactions) - 1

    def note(self, number: int, **what: Any) -> None:
        self.transactions[number] = replace(self.transactions[number], **what)

    @property
    def committed(self) -> int:
        return sum(each.outcome is Outcome.OK for each in self.transactions)


def place(partition: TopicPartition) -> Partition:
    return partition.topic, partition.partition


def by_partition(records: list[Any]) -> dict[Partition, list[Found]]:
    found: dict[Partition, list[Found]] = {}
    for record in records:
        found.setdefault((record.topic, record.partition), []).append((record.offset, record.value))
    return found
