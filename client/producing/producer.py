"""The producer: it takes records and returns deliveries.

`send` puts a record into the open batch of its partition and returns. It waits only if the topic is
not known yet or the buffer is full. It lets other tasks run once for each batch's worth of records,
not for each record: a turn costs more than encoding ten records.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self, Unpack

import trio

from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.metadata import Topic
from odradek.client.config import ProducerConfig, ProducerOptions
from odradek.client.errors import BufferFull, Closed, Refused, TimedOut
from odradek.client.journal import LOG, loggable, records_were
from odradek.client.producing.accumulator import Accumulator
from odradek.client.producing.delivery import Delivery
from odradek.client.producing.ending import complete, finish
from odradek.client.producing.open_transaction import OpenTransaction
from odradek.client.producing.outcomes import Unread, call_back, known_error
from odradek.client.producing.partitioner import DefaultPartitioner
from odradek.client.producing.prepared import Completion, PreparedTransaction
from odradek.client.producing.sender import Sender
from odradek.client.producing.session import IdempotentSession, ProducerSession
from odradek.client.producing.state import SessionState
from odradek.client.producing.transaction import ABORT_GRACE_S, Transaction
from odradek.client.producing.transactional_session import TransactionalSession
from odradek.client.types import Header, OnDelivery, TopicPartition
from odradek.protocol.errors import ErrorCode

RECORD_OVERHEAD_BYTES: Final = 24
"""The estimated size of a record without key and value. It is seldom too small."""
HEADER_OVERHEAD_BYTES: Final = 12
TIMESTAMP_MAX_MS: Final = 2**63 - 1


class Producer:
    """A producer of records. By default it is idempotent: a retry never stores a record twice.

        async with Producer("127.0.0.1:9092") as producer:
            delivery = await producer.send("flights", b"UA 1545", key=b"N14228")
            metadata = await delivery

    With a `transactional_id`, records are sent in `producer.transaction()`. Entering the producer
    then fences the producer that had this id before. A clean exit sends the remaining records, and
    raises the error of a lost record that the program has not read. An exit by an exception drops
    the records that are not sent yet.
    """

    def __init__(self, bootstrap: str | Sequence[str], **options: Unpack[ProducerOptions]) -> None:
        """Make a producer for the brokers at `bootstrap`; entering it connects.

        `bootstrap` is `"host:port"`, several of them separated by commas, or a sequence of them.
        Raises ValueError for a wrong option. The options and their defaults, times in milliseconds:

        - `transactional_id` (None): the name under which this producer has transactions. No other
          running producer has it, and it stays the same after a restart.
        - `acks` ("all"): when a broker acknowledges a record: if "all" (or -1) in-sync replicas
          have it; with 1, if the leader has it; with 0, never.
        - `idempotent` (None): the broker recognises repeated records; None: with `acks="all"`.
        - `linger_ms` (0): how long a record waits for more records to share its batch. Records that
          arrive while a request is under way share a batch anyway.
        - `batch_bytes` (65_536): the size at which a batch is sent.
        - `request_bytes` (1_048_576): the largest size of a request with several batches.
        - `compression` ("none"): or "gzip", "snappy", "lz4", "zstd".
        - `buffer_bytes` (33_554_432): the size of all records that wait for an acknowledgement.
          `send` waits while they are more.
        - `delivery_timeout_ms` (120_000): how long a record may wait for its acknowledgement, from
          the time at which its batch was begun.
        - `transaction_timeout_ms` (60_000): how long a transaction may be open before the broker
          aborts it.
        - `two_phase_commit` (False): transactions have no time-out, because another system decides
          how they end (KIP-939).
        - `keep_prepared` (False): on entering, keep a transaction that this transactional id has
          prepared; `complete` ends it.
        - `partitioner` (None): a function of topic, key and number of partitions that returns the
          partition of a record without one; None: by the key's murmur2 hash, as in the Java client.

        These options of every client are described by `Admin`: `client_id`,
        `request_timeout_ms`, `retry_backoff_ms`, `retry_backoff_max_ms`, `metadata_max_age_ms`,
        `max_block_ms`, `first_connect_ms`, `connect`, `wall_ms`, `rng`.
        """
        self._config = config = ProducerConfig(**options)
        self._cluster = Cluster(bootstrap, config)
        self._accumulator = Accumulator(
            batch_bytes=config.batch_bytes,
            buffer_bytes=config.buffer_bytes,
            delivery_timeout=config.delivery_timeout_ms / 1000,
        )
        self._partitioner = DefaultPartitioner(config.rng, config.batch_bytes)
        self._custom_partitioner = config.partitioner
        self._wall_ms = config.wall_ms
        self._yield_after_bytes = 0
        self._transactions: TransactionalSession | None = None
        session: ProducerSession
        if config.transactional_id is not None:
            session = self._transactions = TransactionalSession(
                self._cluster, config, self._accumulator
            )
        else:
            session = IdempotentSession(self._cluster, config, self._accumulator)
        self._session = session
        self._sender = Sender(self._cluster, config, self._accumulator, session)

    def __repr__(self) -> str:
        name = f" {self.transactional_id!r}" if self.transactional_id else ""
        waiting = self._accumulator.buffered_bytes
        return f"<Producer{name}: id {self.producer_id}, {waiting} bytes to be acknowledged>"

    async def __aenter__(self) -> Self:
        await self._cluster.__aenter__()
        self._cluster.tasks.spawn(self._sender.run)
        if self._transactions is not None:
            try:
                await self._transactions.initialise()
            except BaseException:
                await self._cluster.__aexit__(None, None, None)
                raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._transactions is not None:
                await self._end_open_transaction(self._transactions)
            elif exc is None:
                await self.flush()
        finally:
            await self._close()

    async def _end_open_transaction(self, session: TransactionalSession) -> None:
        """Abort a transaction that is open, or wait for its end, for `ABORT_GRACE_S`."""
        with trio.move_on_after(ABORT_GRACE_S):
            await finish(session)

    async def _close(self) -> None:
        """Close the producer now. Every record gets its outcome, even if the wait is cancelled."""
        try:
            self._accumulator.drop(Closed("the producer was closed before the record was sent"))
            await self._cluster.__aexit__(None, None, None)
        finally:
            for batch in list(self._accumulator.incomplete):
                error = Closed("the producer was closed: the record may or may not be stored")
                self._accumulator.give_up(batch, error)
            self._warn_of_lost()

    def _warn_of_lost(self) -> None:
        """Log lost records whose errors were not read. A transaction is aborted as a whole."""
        count = self._accumulator.failures.unread
        error = self._accumulator.failures.take()
        if error is not None and self._transactions is None:
            LOG.warning(
                "%s lost because the producer was left without flush: %s",
                records_were(count),
                loggable(error),
            )

    @property
    def unacknowledged(self) -> int:
        """The number of records without an outcome yet."""
        return sum(batch.count for batch in list(self._accumulator.incomplete))

    @property
    def transactional_id(self) -> str | None:
        """The name under which this producer has transactions; None without transactions."""
        return self._config.transactional_id

    @property
    def producer_id(self) -> int:
        """The id that a broker gave this producer; -1 as long as none was needed."""
        return self._session.identity.producer_id

    @property
    def producer_epoch(self) -> int:
        """The epoch of the producer id; -1 as long as no id was needed."""
        return self._session.identity.epoch

    @property
    def transaction_version(self) -> int:
        """1 or 2: the generation of the transaction protocol, `transaction.version` (KIP-890)."""
        return self._transactions.transaction_version if self._transactions is not None else 1

    def transaction(self) -> Transaction:
        """Return a transaction, to use with `async with`.

        Raises `Refused` without transactional id.
        """
        if self._transactions is None:
            raise Refused(
                "transactions need a transactional_id: give the producer a name that no other "
                "running producer has, and that stays the same when it is started again"
            )
        return Transaction(self, self._transactions)

    async def complete(self, decided: PreparedTransaction | None) -> Completion:
        """End the prepared transaction: commit it if it equals `decided`, else abort it (KIP-939).

        It was prepared by this producer, or by an earlier instance (`keep_prepared=True`). Without
        an open transaction, do nothing. Raises `Refused` if the open transaction is not prepared,
        or if `decided` is not a `PreparedTransaction` (its `parse` reads the text that was kept);
        `Fatal`, `Fenced`.
        """
        if self._transactions is None:
            raise Refused("only a producer with a transactional_id has prepared transactions")
        return await complete(self._transactions, decided)

    @trio.lowlevel.enable_ki_protection  # Ctrl-C comes before the record is taken, or afterwards
    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Give a record to the producer. Await the returned `Delivery` for its metadata.

        `timestamp_ms` (default: now) is milliseconds since 1970. `value=None` is a tombstone in a
        compacted topic. `on_delivery` is called exactly once, with metadata or with an error, in a
        task of the client: it must be quick and not raise. If `send` raises, `on_delivery` has been
        called with that error. Raises `Refused` for a record that cannot be sent, `BufferFull` if
        there was no room within `max_block_ms`, `TimedOut` if the topic did not appear.
        """
        try:
            transaction = self._open_transaction
            if self._yield_after_bytes <= 0:
                await self._give_way()
                self._check_still_sending(transaction)
            until = None
            while True:
                delivery = self.send_nowait(
                    topic,
                    value,
                    key=key,
                    headers=headers,
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                    on_delivery=on_delivery,
                )
                if delivery is not None:
                    return delivery
                if until is None:
                    until = trio.current_time() + self._config.max_block_ms / 1000
                await self.wait_for_room(topic, until=until)
                self._check_still_sending(transaction)
        except BaseException as error:
            if on_delivery is not None:
                call_back(on_delivery, None, known_error(error))
            raise

    def send_nowait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery | None:
        """Do what `send` does, but return None instead of waiting (`wait_for_room` waits).

        If it raises or returns None, the record was not taken, and `on_delivery` is not called.
        """
        session = self._transactions
        if session is not None and session.state is not SessionState.OPEN:
            session.check_sending()
        cluster, accumulator = self._cluster, self._accumulator
        known = cluster.metadata.topics.get(topic)
        if (
            known is None
            or not known.partitions
            or not accumulator.has_room
            or cluster.tasks.is_closed
        ):
            return None
        try:
            if timestamp_ms is None:
                timestamp_ms = self._wall_ms()
            elif not -1 <= timestamp_ms <= TIMESTAMP_MAX_MS:
                raise ValueError(timestamp_ms)
            size_bytes = (
                RECORD_OVERHEAD_BYTES + (len(value) if value else 0) + (len(key) if key else 0)
            )
            if headers:
                headers = tuple(headers)
                size_bytes += _headers_bytes(headers)
            else:
                headers = ()
            if partition is None:
                partition = self._choose(topic, key, size_bytes, len(known.partitions), known.led)
            elif partition not in known.partitions:
                raise self._cluster.metadata.no_leader(TopicPartition(topic, partition))
            batch, is_new = accumulator.append(
                accumulator.queue(topic, partition),
                key,
                value,
                headers,
                timestamp_ms,
                size_bytes,
            )
        except (TypeError, ValueError, AttributeError) as error:
            wrong = _what_is_wrong(key, value, headers, timestamp_ms)
            if wrong is None:  # the partitioner of the program raised it
                raise
            raise Refused(wrong) from error
        self._yield_after_bytes -= size_bytes
        if is_new:
            self._accumulator.wake()
        index = batch.count - 1
        if on_delivery is not None:
            batch.call_back(index, timestamp_ms, on_delivery)
        return Delivery(batch, index, timestamp_ms)

    async def send_batch(
        self, topic: str, partition: int, batch: bytes | bytearray | memoryview
    ) -> Delivery:
        """Send one record batch that is encoded already (format 2, any codec).

        The batch is copied once. The copy gets the producer id, epoch and sequence of this producer
        and a new CRC. The delivery returns the offset of the first record. Raises `Refused` if the
        bytes are not exactly one valid batch, and the errors of `send`.
        """
        if self._transactions is not None:
            self._transactions.check_sending()
        transaction = self._open_transaction
        await self.wait_for_room(topic)
        known = await self._cluster.topic(topic)
        self._check_still_sending(transaction)
        if partition not in known.partitions:
            raise self._cluster.metadata.no_leader(TopicPartition(topic, partition))
        queue = self._accumulator.queue(topic, partition)
        queued = self._accumulator.append_encoded(queue, bytearray(batch))
        self._accumulator.wake()
        return Delivery(queued, 0, -1)

    def record_lost(self, lost: Unread) -> None:
        """Note a record that was queued for this producer and cannot be sent.

        `flush` raises its error unless the program has read it. The transaction of the record must
        be aborted.
        """
        if self._transactions is None:
            self._accumulator.failures.add(lost)
        elif lost.error is not None:
            self._transactions.abort_needed(lost.error)

    async def flush(self, timeout_ms: float | None = None) -> None:
        """Wait until everything sent so far is acknowledged.

        Raises the first error of a record that the program has not read yet (see `outcomes.py`), or
        `TimedOut` after `timeout_ms` (without it, `delivery_timeout_ms` is the limit).
        """
        limit = float("inf") if timeout_ms is None else timeout_ms / 1000
        await self._flush_until(trio.current_time() + limit, timeout_ms)

    async def _flush_until(self, until: float, timeout_ms: float | None) -> None:
        waiting = list(self._accumulator.incomplete)
        with self._accumulator.flushing(), trio.move_on_at(until):
            for batch in waiting:
                await batch.wait()
        error = self._accumulator.failures.take()
        if error is not None:
            raise error
        late = sum(1 for batch in waiting if not batch.is_done)
        if late:
            raise TimedOut(f"{late} batches were not acknowledged within {timeout_ms} ms")

    @property
    def _open_transaction(self) -> OpenTransaction | None:
        return self._transactions.transaction if self._transactions is not None else None

    def _check_still_sending(self, transaction: OpenTransaction | None) -> None:
        """Raise `Refused` if a record that has waited belongs to an earlier transaction.

        While it waited, another task may have ended the transaction and begun the next one.
        """
        if self._open_transaction is not transaction:
            raise Refused("the transaction has ended while a record of it waited to be taken")
        if self._transactions is not None:
            self._transactions.check_sending()

    async def partitions_for(self, topic: str) -> int:
        """Return the number of partitions of a topic. Raises `TimedOut` if it does not exist."""
        return len((await self._topic(topic)).partitions)

    async def wait_for_room(self, topic: str, *, until: float | None = None) -> None:
        """Wait until a record for `topic` can be taken, for `max_block_ms` or until that time.

        `until` is a time of trio's clock, in seconds. Raises `BufferFull` if there was no room,
        `TimedOut` if the topic did not appear, `Refused`.
        """
        self._cluster.tasks.check_open()
        now = trio.current_time()
        if until is None:
            until = now + self._config.max_block_ms / 1000
        elif until <= now:
            reason = self._cluster.last_trouble
            raise TimedOut(
                f"a record for {topic!r} could not be taken within {self._config.max_block_ms} ms"
                + (f" ({reason})" if reason else ""),
                code=reason.code if reason else None,
            )
        await self._topic(topic, until=until)
        with trio.move_on_at(until):
            while not self._accumulator.has_room:
                self._accumulator.wake()
                await self._accumulator.changed()
            return
        raise BufferFull(
            f"{self._accumulator.buffered_bytes} bytes wait for their acknowledgement, and none "
            f"came within {self._config.max_block_ms} ms; see whether the broker is alive, or "
            f"raise buffer_bytes"
        )

    async def _topic(self, topic: str, *, until: float | None = None) -> Topic:
        if not isinstance(topic, str):
            raise Refused(f"a topic is a str, and {topic!r} was given")
        return await self._cluster.topic(topic, auto_create=True, until=until)

    async def _give_way(self) -> None:
        self._yield_after_bytes = self._config.batch_bytes
        await trio.lowlevel.checkpoint()

    def _choose(
        self,
        topic: str,
        key: bytes | None,
        size_bytes: int,
        count: int,
        led: tuple[int, ...] = (),
    ) -> int:
        """Choose the partition of a record, as Kafka's clients do.

        `led` has the partitions with a leader, or nothing if all have one. A record without a key
        goes to one of them.
        """
        if self._custom_partitioner is not None:
            chosen = self._custom_partitioner(topic, key, count)
            if not 0 <= chosen < count:
                raise Refused(
                    f"the partitioner chose partition {chosen} of {topic!r}, which has 0 to "
                    f"{count - 1}",
                    code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )
            return chosen
        if key is not None:
            return self._partitioner.of_key(key, count)
        if led:  # records of a partition without a leader would wait
            return led[self._partitioner.without_key(topic, size_bytes, len(led))]
        return self._partitioner.without_key(topic, size_bytes, count)


def _headers_bytes(headers: Sequence[Header]) -> int:
    return sum(
        HEADER_OVERHEAD_BYTES + len(name) + (len(value) if value else 0) for name, value in headers
    )


def _what_is_wrong(key: object, value: object, headers: object, timestamp_ms: object) -> str | None:
    """Return why a record cannot be encoded; None if nothing is wrong with it.

    It is called only after encoding has failed, because checking each record takes time.
    """
    for name, given in (("value", value), ("key", key)):
        if not _is_bytes_or_none(given):
            kind = type(given).__name__
            return f"a record's {name} is bytes or None, and {kind} was given: encode it first"
    if not isinstance(timestamp_ms, int) or not -1 <= timestamp_ms <= TIMESTAMP_MAX_MS:
        return f"timestamp_ms is a whole number, milliseconds since 1970, not {timestamp_ms!r}"
    if not isinstance(headers, Sequence) or not all(map(_is_header, headers)):
        return f"headers are pairs of a name, a str, and a value, bytes or None, not {headers!r}"
    return None


def _is_header(given: object) -> bool:
    if not isinstance(given, tuple | list) or len(given) != 2:
        return False
    name, value = given
    return isinstance(name, str) and _is_bytes_or_none(value)


def _is_bytes_or_none(given: object) -> bool:
    return given is None or isinstance(given, bytes | bytearray | memoryview)
