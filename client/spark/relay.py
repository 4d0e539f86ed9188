"""The sink's commit: the driver writes the records of all tasks in one transaction, exactly once.

Spark runs a batch again whenever it is not sure that it was committed: after a crash anywhere in
`commit`, and even after a clean stop of the query. The records of the two runs cannot be compared,
because rows may belong to other tasks in the second run. So the transaction that writes the records
also writes the decision: the number of the batch. A commit has three steps:

1. acquire: InitProducerId of the transactional id `<prefix>.<query>.driver`. Any other commit of
   this query, whether on a driver that was given up or in a process that outlived its driver, is
   fenced from here on, and an open transaction that it left is aborted.
2. read the decision: the newest batch that was committed. If it is this one, Spark is replaying it,
   and it is skipped. If it is newer, this driver is out of date and must stop.
3. in one transaction: the records of all tasks, and the decision.

The decision is the offset of group `<prefix>.<query>` for one partition of `<prefix>-decisions`:
the batch's number. Kafka deletes offsets of groups without members after 7 days, and a person can
reset them. So the decision is also a record of that partition, and the newer of the two counts. The
offset's metadata has the place of the record, and only later records have to be read. Without an
offset the whole partition is read, at most once for each query and week.

`<prefix>-decisions` is compacted, so the newest decision of each query stays, however long the
query pauses. A topic that exists already is used as it is.

A batch write without an application's id and version cannot be recognised when it runs again. It is
one transaction, all or nothing, and leaves no decision.
"""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from odradek.client.blocking import Admin, Consumer, Producer, Transaction
from odradek.client.config import ConsumerOptions, ProducerOptions
from odradek.client.errors import Refused
from odradek.client.producing.partitioner import murmur2
from odradek.client.spark.messages import TopicBatch
from odradek.client.spark.options import WriteOptions
from odradek.client.types import FetchedBatch, NewTopic, OffsetAndMetadata, TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, RecordReader

DECISION_PARTITIONS: Final = 8
"""The partitions of the topic. It never changes: the partition of a query follows from it."""
DECISION_CONFIGS: Final = (("cleanup.policy", "compact"),)
READ_TIMEOUT_S: Final = 120.0
"""The time limit of reading decisions, longer than an abandoned transaction stays open."""
POLL_MS: Final = 1_000
UNDECIDED: Final = -1
DECODED_AT_ONCE: Final = 1_000


class StaleDriver(RuntimeError):
    """A newer batch was committed than this one. The message states what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The newest committed batch of a query, and the place of its record."""

    batch_id: int
    offset: int


class Relay:
    """The commits of one query or batch write.

    Each commit opens its connections. On one machine that takes 15 of its 30 ms, and Spark needs
    400 ms for a micro-batch. To keep connections, a process that Spark may end at any time would
    need module state, by query, and would have to drop it when a producer is fenced.
    """

    def __init__(self, options: WriteOptions, write_id: str) -> None:
        self._options = options
        self._write_id = write_id
        self.group_id = f"{options.prefix}.{write_id}"
        self.transactional_id = f"{self.group_id}.driver"
        partition = (murmur2(write_id.encode()) & 0x7FFFFFFF) % DECISION_PARTITIONS
        self.decisions = TopicPartition(f"{options.prefix}-decisions", partition)

    def commit(self, batch_id: int | None, batches: Sequence[TopicBatch]) -> bool:
        """Write `batches` unless batch `batch_id` was committed before. Return True if written.

        Raises `StaleDriver` and the client's errors. After an error either nothing is visible, or
        the batch is committed, and the next commit of the same batch finds that.
        """
        with self.acquire() as producer:
            if batch_id is not None and self.is_decided(batch_id):
                return False
            with producer.transaction() as transaction:
                self.write(transaction, batches)
                if batch_id is not None:
                    self.decide(transaction, batch_id, batches)
        return True

    def acquire(self) -> Producer:
        """Fence every other commit of this query, by entering a producer with its id."""
        options = self._options
        producer: ProducerOptions = {
            **options.client,
            **options.producer,
            "transactional_id": self.transactional_id,
        }
        return Producer(options.bootstrap, **producer)

    def is_decided(self, batch_id: int) -> bool:
        """Return True if the batch was committed. Raises `StaleDriver` if a newer batch was."""
        newest = self.newest_decision().batch_id
        if newest > batch_id:
            raise StaleDriver(
                f"Batch {batch_id} of {self._write_id} is out of date, for batch {newest} has been "
                "committed: another driver runs this query, or its checkpoint was set back. Stop "
                "this one, or begin with a new checkpoint."
            )
        return newest == batch_id

    def write(self, transaction: Transaction, batches: Iterable[TopicBatch]) -> None:
        """Send the records in the transaction."""
        for batch in batches:
            transaction.send_batch(batch.topic, batch.partition, batch.data)

    def decide(
        self, transaction: Transaction, batch_id: int, batches: Sequence[TopicBatch]
    ) -> None:
        """Write the decision for batch `batch_id` in the transaction: an offset and a record."""
        records = sum(batch.record_count for batch in batches)
        delivery = transaction.send(
            self.decisions.topic,
            json.dumps({"version": 1, "batch": batch_id, "records": records}).encode(),
            key=self._write_id.encode(),
            partition=self.decisions.partition,
        )
        metadata = json.dumps({"version": 1, "offset": delivery.result().offset})
        offsets = {self.decisions: OffsetAndMetadata(batch_id, metadata)}
        transaction.send_offsets(offsets, self.group_id)

    def newest_decision(self) -> Decision:
        """Return the newest decision, from the group's offset or the topic's records.

        Call it after `acquire`, which has ended every open transaction of the query.
        """
        with self._consumer({"group_id": self.group_id}) as consumer:
            stored = consumer.committed([self.decisions], require_stable=True)
            decision = _stored_decision(stored.get(self.decisions))
            if decision.offset >= 0:
                end = consumer.end_offsets([self.decisions])[self.decisions]
            else:
                self._ensure_topic()
                end = self._high_watermark()
            return self._read_decisions(consumer, decision, end)

    def _consumer(self, more: ConsumerOptions) -> Consumer:
        options: ConsumerOptions = {**self._options.client, **more}
        return Consumer(self._options.bootstrap, **options)

    def _ensure_topic(self) -> None:
        """Create the topic of decisions unless it exists."""
        topic = NewTopic(
            self.decisions.topic, partitions=DECISION_PARTITIONS, configs=DECISION_CONFIGS
        )
        with Admin(self._options.bootstrap, **self._options.client) as admin:
            try:
                admin.create_topics([topic])
            except Refused as refused:
                if refused.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise

    def _high_watermark(self) -> int:
        """Return the end of the partition with read_uncommitted.

        Without an offset all records up to it are waited for, because an open transaction of
        another query may stand before a decision of this query.
        """
        with self._consumer({"isolation_level": "read_uncommitted"}) as consumer:
            return consumer.end_offsets([self.decisions])[self.decisions]

    def _read_decisions(self, consumer: Consumer, newest: Decision, end: int) -> Decision:
        """Return the newest decision of `newest` and the records between it and `end`."""
        consumer.assign([self.decisions])
        earliest = consumer.beginning_offsets([self.decisions])[self.decisions]
        position = max(newest.offset + 1, earliest)
        consumer.seek(self.decisions, position)
        give_up_at = time.monotonic() + READ_TIMEOUT_S
        while position < end:
            if time.monotonic() > give_up_at:
                raise TimeoutError(
                    f"{self.decisions} could not be read up to offset {end} within "
                    f"{READ_TIMEOUT_S:.0f} s: an open transaction of another query is in the way, "
                    "or the broker is slow. Start the query again."
                )
            # Whole batches, because `fetch_batches` also returns when it has passed only a marker.
            for batch in consumer.fetch_batches(POLL_MS):
                for record in _records(batch):
                    if record.key == self._write_id.encode():
                        found = Decision(batch_id=_batch_of(record.value), offset=record.offset)
                        newest = max(newest, found, key=lambda decision: decision.batch_id)
            position = consumer.position(self.decisions)
        return newest


def _records(batch: FetchedBatch) -> Iterator[Record]:
    """Yield the records of a batch, some at a time: the topic may have batches of any producer."""
    reader = RecordReader(batch.data)
    while reader.left:
        yield from reader.take(DECODED_AT_ONCE)


def _stored_decision(stored: OffsetAndMetadata | None) -> Decision:
    if stored is None or stored.offset < 0:
        return Decision(batch_id=UNDECIDED, offset=-1)
    try:
        offset = int(json.loads(stored.metadata)["offset"])
    except (ValueError, KeyError, TypeError):
        offset = -1  # the group's offset was set by hand, so the records decide
    return Decision(batch_id=stored.offset, offset=offset)


def _batch_of(value: bytes | None) -> int:
    decided: Any = json.loads(value or b"{}")
    return int(decided["batch"])
