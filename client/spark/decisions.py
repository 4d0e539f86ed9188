"""The decisions of the sink: the newest batch of each scope that was committed.

A decision is a record of the topic `<prefix>-decisions`, with the name of its scope as key
(`scope.py`: the query or application, and the target) and the batch's number in the value. The
transaction that writes a batch also writes this record, so one of them is visible only if the other
is. The topic is compacted: the newest decision of each scope stays, however long the query pauses.
A topic that exists already is used as it is.

An earlier version had the query's id as key, without the target. Such a decision counts for every
target of the query, and so does any other decision whose scope may be the same.

The offset of group `<prefix>.<scope>` for that partition is a hint. It is the batch's number, and
its metadata has the place of the record, so that only later records have to be read. Kafka deletes
offsets of groups without members after 7 days, and a person can reset them. Without it the whole
partition is read.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from odradek.client.blocking import Admin, Consumer
from odradek.client.config import ClientOptions, ConsumerOptions
from odradek.client.errors import Refused, TimedOut
from odradek.client.producing.partitioner import murmur2
from odradek.client.spark.errors import CommitRefused
from odradek.client.spark.scope import Scope
from odradek.client.spark.topic_ids import find_topic_id
from odradek.client.types import FetchedBatch, NewTopic, OffsetAndMetadata, TopicPartition
from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.record import Record, RecordReader

DECISION_PARTITIONS: Final = 8
"""The partitions of the topic. It never changes: the partition of a query, and of all its targets,
follows from it."""
DECISION_CONFIGS: Final = (("cleanup.policy", "compact"),)
INTERNAL: Final = ("odradek.internal", "true")
"""A setting of topics that only Odradek has: no pattern matches the topic."""
READ_TIMEOUT_S: Final = 120.0
"""The time limit of reading decisions, longer than an abandoned transaction stays open."""
POLL_MS: Final = 1_000
DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
UNDECIDED: Final = -1
DECODED_AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The newest committed batch of a scope, and the place of its record."""

    scope: Scope
    batch_id: int
    offset: int


class Decisions:
    """The decisions that count for one scope."""

    def __init__(self, bootstrap: str, client: ClientOptions, *, prefix: str, scope: Scope) -> None:
        self._bootstrap = bootstrap
        self._client = client
        self._scope = scope
        self._connected: Consumer | None = None
        self.group_id: Final = f"{prefix}.{scope.name}"
        partition = (murmur2(scope.write_id.encode()) & 0x7FFFFFFF) % DECISION_PARTITIONS
        self.place: Final = TopicPartition(decisions_topic(prefix), partition)

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Use one consumer, and its connections, for `hint` and `newest` in the block."""
        more: ConsumerOptions = {
            "group_id": self.group_id,
            "isolation_level": "read_uncommitted",
        }
        options: ConsumerOptions = {**self._client, **more}
        with Consumer(self._bootstrap, **options) as self._connected:
            try:
                yield
            finally:
                self._connected = None

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        if self._connected is not None:
            yield self._connected
            return
        with self.connected():
            assert self._connected is not None
            yield self._connected

    def hint(self, *, is_driver: bool) -> Decision:
        """Return the newest decision that the group's offset knows of. It may be out of date.

        The query's driver, which has ended every earlier transaction, waits until its offset is
        stored. A task does not: a driver that was given up may have its transaction still open.
        """
        with self._consumer() as consumer:
            stored = consumer.committed([self.place], require_stable=is_driver)
        return _stored_decision(self._scope, stored.get(self.place))

    def newest(self, hint: Decision, before: int) -> Decision:
        """Return the newest decision at an offset below `before`.

        `before` is the offset of a record that the caller has just written in a transaction of the
        query's driver. So the partition's leader is the right one, every earlier transaction of the
        query's drivers has ended, and nothing of theirs can come to stand before it any more.
        """
        with self._consumer() as consumer:
            found = list(self._read(consumer, hint.offset + 1, before))
        if not found:
            return hint
        # Some are of drivers that were given up. Which, the last stable offset will tell.
        end = found[-1].offset + 1
        with Consumer(self._bootstrap, **self._client) as consumer:
            committed = list(self._read(consumer, hint.offset + 1, end))
        # Of two with the same number the later one counts: it says more about its scope.
        return max([hint, *committed], key=lambda each: (each.batch_id, each.offset))

    def ensure_topic(self) -> None:
        """Create the topic of decisions unless it exists.

        A user who may not create it can use one that an administrator has made.
        """
        topic = self.place.topic
        with Admin(self._bootstrap, **self._client) as admin:
            try:
                self._create(admin, (*DECISION_CONFIGS, INTERNAL))
            except Refused as refused:
                if refused.code == ErrorCode.INVALID_CONFIG:  # another broker does not know it
                    self._create(admin, DECISION_CONFIGS)
                # Brokers refuse this before they look whether the topic exists.
                elif refused.code != DENIED or find_topic_id(admin, topic) is None:
                    raise

    def _create(self, admin: Admin, configs: tuple[tuple[str, str], ...]) -> None:
        topic = NewTopic(self.place.topic, partitions=DECISION_PARTITIONS, configs=configs)
        try:
            admin.create_topics([topic])
        except Refused as refused:
            if refused.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def _read(self, consumer: Consumer, start: int, end: int) -> Iterator[Decision]:
        """Yield the decisions for this scope from offset `start` to `end`, which is excluded."""
        consumer.assign([self.place])
        position = max(start, consumer.beginning_offsets([self.place])[self.place])
        consumer.seek(self.place, position)
        give_up_at = time.monotonic() + READ_TIMEOUT_S
        while position < end:
            if time.monotonic() > give_up_at:
                raise TimedOut(
                    f"{self.place} could not be read up to offset {end} within "
                    f"{READ_TIMEOUT_S:.0f} s: an open transaction of another query is in the way, "
                    "or the broker is slow. Start the query again."
                )
            # Whole batches, because `fetch_batches` also returns when it has passed only a marker.
            for batch in consumer.fetch_batches(POLL_MS):
                for record in _records(batch):
                    scope = _scope_of(record)
                    if scope and scope.matches(self._scope) and record.offset < end:
                        yield self._decision(scope, record)
            position = consumer.position(self.place)

    def _decision(self, scope: Scope, record: Record) -> Decision:
        try:
            return Decision(scope=scope, batch_id=batch_of(record.value), offset=record.offset)
        except (ValueError, KeyError, TypeError):
            raise CommitRefused(
                f"The record at offset {record.offset} of {self.place} has the key of "
                f"{self._scope.write_id} and is no decision of this sink, so nothing is committed: "
                "delete it, or write with another transactionalIdPrefix."
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedQuery:
    """The newest decision of a scope, as its record has it.

    `records` is the number of records of the batch, `members` that of the tasks which wrote in
    transactions of their own, and `decided_ms` when the driver wrote the record.
    """

    scope: Scope
    batch_id: int
    records: int
    members: int
    decided_ms: int
    offset: int


def decided_queries(consumer: Consumer, prefix: str) -> dict[Scope, DecidedQuery]:
    """Return the newest decision of every query and application with this prefix, by target.

    `consumer` is read_committed. Raises `Refused` if there is no topic of decisions, `TimedOut`.
    """
    topic = decisions_topic(prefix)
    places = [TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
    ends = consumer.end_offsets(places)
    consumer.assign(places)
    consumer.seek_to_beginning()
    found: dict[Scope, DecidedQuery] = {}
    give_up_at = time.monotonic() + READ_TIMEOUT_S
    while any(consumer.position(place) < ends[place] for place in places):
        if time.monotonic() > give_up_at:
            raise TimedOut(f"{topic} could not be read within {READ_TIMEOUT_S:.0f} s")
        for batch in consumer.fetch_batches(POLL_MS):
            for record in _records(batch):
                decided = _decided(record)
                if decided is None:
                    continue
                known = found.get(decided.scope)
                if known is None or decided.batch_id >= known.batch_id:
                    found[decided.scope] = decided
    return found


def _decided(record: Record) -> DecidedQuery | None:
    """Return what a record says, or None for one that somebody else has written there."""
    scope = _scope_of(record)
    if scope is None:
        return None
    try:
        facts: Any = json.loads(record.value or b"")
        return DecidedQuery(
            scope=scope,
            batch_id=int(facts["batch"]),
            records=int(facts.get("records", 0)),
            members=int(facts.get("members", 0)),
            decided_ms=record.timestamp_ms,
            offset=record.offset,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _scope_of(record: Record) -> Scope | None:
    """Return the scope that a record is for, or None for one that somebody else has written."""
    try:
        return Scope.parse((record.key or b"").decode())
    except ValueError:
        return None


def decisions_topic(prefix: str) -> str:
    return f"{prefix}-decisions"


def decision_value(batch_id: int | None, records: int, members: int) -> bytes | None:
    """Return the value of a decision's record.

    A batch write without a version decides once, and nobody asks for it later. So its value is
    None, and compaction removes it.
    """
    if batch_id is None:
        return None
    facts = {"version": 1, "batch": batch_id, "records": records, "members": members}
    return json.dumps(facts).encode()


def batch_of(value: bytes | None) -> int:
    if value is None:
        return UNDECIDED
    decided: Any = json.loads(value)
    return int(decided["batch"])


def _records(batch: FetchedBatch) -> Iterator[Record]:
    """Yield the records of a batch, some at a time: the topic may have batches of any producer."""
    reader = RecordReader(batch.data)
    while reader.left:
        yield from reader.take(DECODED_AT_ONCE)


def _stored_decision(scope: Scope, stored: OffsetAndMetadata | None) -> Decision:
    unknown = Decision(scope=scope, batch_id=UNDECIDED, offset=-1)
    if stored is None or stored.offset < 0:
        return unknown
    try:
        offset = int(json.loads(stored.metadata)["offset"])
    except (ValueError, KeyError, TypeError):
        return unknown  # the group's offset was set by hand, so the records decide
    return Decision(scope=scope, batch_id=stored.offset, offset=offset)
