"""The producer: it takes records and returns deliveries.

`send` puts a record into the open batch of its partition and returns. It waits only if the topic is
not known yet or the buffer is full. It lets other tasks run once for each batch's worth of records,
not for each record: a turn costs more than encoding ten records.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self, Unpack

import trio

from odradek.client.arguments import in_ms, named
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.counting import start_reports
from odradek.client.cluster.nursery import ends_where_it_waits
from odradek.client.cluster.served import Served
from odradek.client.config import ProducerConfig, ProducerOptions, read_options
from odradek.client.errors import Closed, Fatal, OdradekError, Refused, TimedOut
from odradek.client.producing.accumulator import Accumulator
from odradek.client.producing.delivery import Delivery
from odradek.client.producing.ending import complete, finish
from odradek.client.producing.forwarding import Forwards
from odradek.client.producing.last_producer import LastProducer
from odradek.client.producing.open_transaction import OpenTransaction
from odradek.client.producing.outcomes import Unread, call_back, known_error
from odradek.client.producing.partitioner import RecordPartitioner
from odradek.client.producing.prepared import Completion, PreparedTransaction
from odradek.client.producing.producer_view import ProducerView
from odradek.client.producing.record_checks import (
    RECORD_OVERHEAD_BYTES,
    TIMESTAMP_MAX_MS,
    headers_bytes,
    what_is_wrong,
)
from odradek.client.producing.room import Room
from odradek.client.producing.sender import Sender
from odradek.client.producing.serializing import Serializers
from odradek.client.producing.session import IdempotentSession
from odradek.client.producing.state import SessionState
from odradek.client.producing.transaction import Transaction
from odradek.client.producing.transactional_session import TransactionalSession
from odradek.client.serialization import Serializer
from odradek.client.types import (
    Header,
    Key,
    OnDelivery,
    RecordMetadata,
    RecordOptions,
    Serialized,
    TopicPartition,
    Value,
)

NO_TRANSACTIONS: Final = (
    "transactions need a transactional_id: give the producer a name that no other running producer "
    "has, and that stays the same when it is started again"
)
FLUSH_GRACE_S: Final = 5.0
"""The time for which a producer that is left by an exception sends what remains."""


# Ctrl-C is raised before a record is taken, or afterwards.
@ends_where_it_waits
class Producer(Served, ProducerView, Forwards[Key, Value]):
    """A producer of records. By default it is idempotent: a retry never stores a record twice.

        async with Producer("127.0.0.1:9092") as producer:
            delivery = await producer.send("flights", b"UA 1545", key=b"N14228")
            metadata = await delivery

    With a `transactional_id`, records are sent in `producer.transaction()`. Entering the producer
    then fences the producer that had this id before.

    A clean exit sends the remaining records, and raises the error of a lost record that the program
    has not read. An exit by an exception sends them, too, for at most 5 s: they were given to the
    producer before the error, and other clients do it. With `flush_on_error=False` it drops what is
    not sent yet. An exit by a cancellation or Ctrl-C always does. A line of the log counts them.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        key_serializer: Serializer[Key] | None = None,
        value_serializer: Serializer[Value] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Make a producer for the brokers at `bootstrap`; entering it connects.

        `bootstrap` is `"host:port"`, several of them separated by commas, or a sequence of them.
        Raises ValueError for a wrong option. The options and their defaults, times in milliseconds:

        - `key_serializer`, `value_serializer`: functions that return the bytes of a key and of a
          value, or async functions. They are not called for None, nor for `Serialized` bytes. A
          second argument, if they have one, is a `SerializationContext`. Partitioners get the
          bytes.
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
        - `flush_on_error` (True): an exit by an exception sends the remaining records; False: it
          drops them. A transaction is aborted in both cases.
        - `transaction_timeout_ms` (60_000): how long a transaction may be open before the broker
          aborts it.
        - `two_phase_commit` (False): transactions have no time-out, because another system decides
          how they end (KIP-939).
        - `keep_prepared` (False): on entering, keep a transaction that this transactional id has
          prepared; `complete` ends it.
        - `partitioner` (None): a function of topic, key and number of partitions that returns the
          partition of a record without one; None: by the key's murmur2 hash, as in the Java client.
        - `tracer` (None): of OpenTelemetry; a span for each transaction, below the current span.
        - `on_statistics` (None): a quick function that gets `ProducerStatistics` at an interval.
        - `statistics_interval_ms` (10_000): that interval.

        These options of every client are described by `Admin`: `client_id`, `request_timeout_ms`,
        `retry_backoff_ms`, `retry_backoff_max_ms`, `metadata_max_age_ms`, `max_block_ms`,
        `first_connect_ms`, `security_protocol` with all of TLS (`ssl_*`) and SASL (`sasl_*`),
        `connect`, `wall_ms`, `rng`.
        """
        self._config = config = read_options(ProducerConfig, type(self).__name__, options)
        self._cluster = Cluster(bootstrap, config)
        self._serializers = Serializers(key_serializer, value_serializer)
        self._accumulator = Accumulator(
            batch_bytes=config.batch_bytes,
            buffer_bytes=config.buffer_bytes,
            delivery_timeout=config.delivery_timeout_ms / 1000,
        )
        self._partitioner = RecordPartitioner(config.partitioner, config.rng, config.batch_bytes)
        self._room = Room(self._cluster, self._accumulator, config.max_block_ms)
        self._wall_ms = config.wall_ms
        self._yield_after_bytes = 0
        self._transactions = None
        given = self._cluster, config, self._accumulator
        if config.transactional_id is not None:
            self._session = self._transactions = TransactionalSession(*given)
        else:
            self._session = IdempotentSession(*given)
        self._sender = Sender(*given, self._session)

    async def __aenter__(self) -> Self:
        await self._cluster.__aenter__()
        self._cluster.tasks.spawn(self._sender.run)
        report, interval_ms = self._config.on_statistics, self._config.statistics_interval_ms
        start_reports(self._cluster.tasks, report, interval_ms, self.statistics)
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
                await finish(self._transactions)
            elif exc is None:
                await self.flush()
            elif self._config.sends_rest(exc):
                await self._flush_after(exc)
        finally:
            await self._close()

    async def _flush_after(self, exc: BaseException) -> None:
        """Send what remains after an error. What fails then is a note on the error."""
        with trio.move_on_after(FLUSH_GRACE_S):
            try:
                await self.flush()
            except OdradekError as error:
                exc.add_note(f"Sending the remaining records failed as well: {error}")

    async def _close(self) -> None:
        """Close the producer now. Every record gets its outcome, even if the wait is cancelled."""
        try:
            self._accumulator.drop(Closed("the producer was closed before the record was sent"))
            await self._cluster.__aexit__(None, None, None)
        finally:
            for batch in list(self._accumulator.incomplete):
                error = Closed("the producer was closed: the record may or may not be stored")
                self._accumulator.give_up(batch, error)
            if self._transactions is None:
                self._accumulator.failures.log_unread()
            else:  # the transaction is aborted as a whole, and the program knows it
                self._accumulator.failures.take()

    @property
    def _failure(self) -> OdradekError | None:
        """The error after which a transactional producer cannot be used any more; None before."""
        session = self._transactions
        if session is None or session.state is not SessionState.FAILED:
            return None
        return session.transaction.cause or Fatal("the producer has failed")

    def _go_on_after(self, last: LastProducer) -> None:
        """Take the place of a producer that has failed, unless another one has taken its id over.

        Call it before entering.
        """
        assert self._transactions is not None
        self._transactions.last = last

    def _as_last(self) -> LastProducer:
        assert self._transactions is not None
        return self._transactions.as_last()

    def transaction(self, *, wait_ms: float = 0) -> Transaction[Key, Value]:
        """Return a transaction, to use with `async with`.

        A producer has one at a time. If another task has one open, entering this one raises
        `Refused`; with `wait_ms` it waits so long for its end, and then raises `Busy`
        (`TransactionPool` has several at a time). Raises `Refused` without transactional id.
        """
        if self._transactions is None:
            raise Refused(NO_TRANSACTIONS)
        in_ms(wait_ms, "wait_ms")
        return Transaction(self, self._transactions, wait_ms)

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

    async def send(
        self,
        topic: str,
        value: Value | Serialized | None,
        *,
        key: Key | Serialized | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Queue a record to be sent. Await the returned `Delivery` for its metadata.

        `timestamp_ms` (default: now) is milliseconds since 1970. `value=None` is a tombstone in a
        compacted topic. `on_delivery` is called exactly once, with metadata or with an error, in a
        task of the client: it must be quick and not raise. If `send` raises, `on_delivery` has been
        called with that error. Raises `Refused` for a record that cannot be sent, or if a
        serializer fails; `BufferFull` if there was no room within `max_block_ms`, `TimedOut` if the
        topic did not appear.
        """
        try:
            # invariant client 11: A record belongs to the transaction in which it was sent, however
            # long its serializer takes.
            # plant a record whose serializer outlasts its transaction is sent in the next one
            # plant a transaction that ended early drops the records of the next one on leaving its
            # block
            transaction = self._open_transaction
            sent_key: Any = key
            sent_value: Any = value
            if self._serializers.is_needed:
                sent_key, sent_value, headers = await self._serializers.encode(
                    topic, key, value, headers
                )
                self._check_still_sending(transaction)
            if self._yield_after_bytes <= 0:
                self._yield_after_bytes = self._config.batch_bytes
                await trio.lowlevel.checkpoint()
                self._check_still_sending(transaction)
            until = None
            while True:
                delivery = self._take(
                    topic, sent_value, sent_key, headers, partition, timestamp_ms, on_delivery
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

    async def send_and_wait(
        self, topic: str, value: Value | Serialized | None, **options: Unpack[RecordOptions[Key]]
    ) -> RecordMetadata:
        """Send a record, wait until it is stored, and return where. Raises the record's error.

        Options as in `send`. Many records are sent faster with `send`, which does not wait.
        """
        return await (await self.send(topic, value, **options))

    @trio.lowlevel.enable_ki_protection
    def send_nowait(
        self,
        topic: str,
        value: Value | Serialized | None,
        *,
        key: Key | Serialized | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery | None:
        """Send as `send` does, but return None instead of waiting (`wait_for_room` waits).

        If it raises or returns None, the record was not taken, and `on_delivery` is not called.
        """
        sent_key: Any = key
        sent_value: Any = value
        if self._serializers.is_needed:
            sent_key, sent_value, headers = self._serializers.encode_nowait(
                topic, key, value, headers
            )
        return self._take(
            topic, sent_value, sent_key, headers, partition, timestamp_ms, on_delivery
        )

    def _take(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header],
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: OnDelivery | None,
    ) -> Delivery | None:
        """Take an encoded record, as `send_nowait` does."""
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
                size_bytes += headers_bytes(headers)
            else:
                headers = ()
            if partition is None:
                partition = self._partitioner.choose(
                    topic, key, size_bytes, len(known.partitions), known.led
                )
            elif partition not in known.partitions:
                named((topic, partition))
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
            wrong = what_is_wrong(key, value, headers, timestamp_ms)
            if wrong is None:  # the partitioner of the program raised it
                raise
            raise Refused(wrong) from error
        self._yield_after_bytes -= size_bytes
        index = batch.count - 1
        if on_delivery is not None:
            batch.call_back(index, timestamp_ms, on_delivery)
        if is_new:
            self._sender.begin()
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
        if timeout_ms is not None:
            in_ms(timeout_ms)
        limit = float("inf") if timeout_ms is None else timeout_ms / 1000
        await self._flush_until(trio.current_time() + limit, timeout_ms)

    async def _flush_until(self, until: float, timeout_ms: float | None) -> None:
        late = await self._accumulator.flush(until)
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
        return len((await self._room.topic(topic)).partitions)

    async def wait_for_room(self, topic: str, *, until: float | None = None) -> None:
        """Wait until a record for `topic` can be taken, for `max_block_ms` or until that time.

        `until` is a time of trio's clock, in seconds. Raises `BufferFull` if there was no room,
        `TimedOut` if the topic did not appear, `Refused`.
        """
        await self._room.wait(topic, until=until)
