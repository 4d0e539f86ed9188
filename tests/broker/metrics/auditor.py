"""What the logs of a broker say: the records of topics, and the history of transactional ids.

It reads with plain Fetch requests, and without a client of ours. Topics have the time of the append
in their batches, so that it knows which of them a process has appended.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from odradek.broker.testing import RunningBroker
from odradek.broker.txn.transaction import State
from odradek.protocol.batch import BatchHeader, TimestampType, iter_batches
from odradek.protocol.record import decode_batch
from odradek.protocol.state_topics import (
    TRANSACTION_STATE_TOPIC,
    TransactionLogKey,
    TransactionLogValue,
    decode_transaction_state_key,
    decode_value,
)
from tests.broker.asks import fetch
from tests.broker.raw import RawClient

DECIDED: Final = {
    State.PREPARE_COMMIT.value: "commit",
    State.PREPARE_ABORT.value: "abort",
}


@dataclass(slots=True)
class Audit:
    """What was appended since a moment."""

    records: Counter[str] = field(default_factory=Counter)
    """By topic, as the others."""
    size_bytes: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    """Transactions by how they ended. The cause of an abort counts as one."""
    read_bytes: Counter[str] = field(default_factory=Counter)
    """What the auditor itself has been sent of each topic, with markers."""


class Auditor:
    """Reads each batch once."""

    def __init__(self, topics: tuple[str, ...], partitions: int, state_partitions: int) -> None:
        self._partitions = [(topic, index) for topic in topics for index in range(partitions)]
        self._state_partitions = [(TRANSACTION_STATE_TOPIC, n) for n in range(state_partitions)]
        self._ends: Counter[tuple[str, int]] = Counter()
        self.transactions: dict[str, TransactionLogValue] = {}
        """The last value of each transactional id."""
        self.begin(0)

    def log_end(self, topic: str) -> int:
        """Return the sum of the ends of the partitions, as far as they were read."""
        return sum(end for (name, _), end in self._ends.items() if name == topic)

    def begin(self, since_ms: int) -> None:
        """Count from 0 what is appended from a moment on."""
        self.audit, self._since_ms = Audit(), since_ms

    def read(self, broker: RunningBroker) -> None:
        """Read what is new, up to the high watermarks."""
        audit, since_ms = self.audit, self._since_ms
        with RawClient(broker, client_id="auditor") as client:
            for where in self._partitions:
                for header, _ in self._batches(client, where):
                    if header.is_control:
                        continue
                    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
                    if header.max_timestamp >= since_ms:
                        audit.records[where[0]] += header.record_count
                        audit.size_bytes[where[0]] += header.size_bytes
            for where in self._state_partitions:
                for _, batch in self._batches(client, where):
                    self._take(batch)

    def _batches(
        self, client: RawClient, where: tuple[str, int]
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        topic, partition = where
        while True:
            found = fetch(client, topic, self._ends[where], partition=partition)
            assert found.error_code == 0, (where, found)
            if not found.records:
                assert self._ends[where] == found.high_watermark
                return
            self.audit.read_bytes[topic] += len(found.records)
            for header, batch in iter_batches(found.records):
                yield header, batch
                self._ends[where] = header.next_offset

    def _take(self, batch: memoryview) -> None:
        for record in decode_batch(batch):
            key = decode_transaction_state_key(record.key)
            assert isinstance(key, TransactionLogKey), key
            if record.value is None:
                del self.transactions[key.transactional_id]
                continue
            after = decode_value(TransactionLogValue, record.value)
            before = self.transactions.get(key.transactional_id)
            self.transactions[key.transactional_id] = after
            if before is None or after.transaction_last_update_timestamp_ms < self._since_ms:
                continue
            was_decided = before.transaction_partitions and before.transaction_status in DECIDED
            if was_decided and after.transaction_status not in DECIDED:
                self.audit.ended[how_ended(before)] += 1

    @property
    def open_starts_ms(self) -> list[int]:
        """When the transactions began that are not complete."""
        open_states = {State.ONGOING.value, *DECIDED}
        return [
            each.transaction_start_timestamp_ms
            for each in self.transactions.values()
            if each.transaction_status in open_states
        ]


def how_ended(decided: TransactionLogValue) -> str:
    """Return what has ended a transaction that is decided: a producer, or a cause of the broker."""
    how = DECIDED[decided.transaction_status]
    is_fenced = decided.epoch_bump_timestamp_ms >= decided.transaction_start_timestamp_ms
    if how == "abort" and decided.epoch_bump_cause is not None and is_fenced:
        return decided.epoch_bump_cause
    return how
