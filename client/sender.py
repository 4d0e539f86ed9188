"""Batches to brokers and answers to batches.

`pump` does the work and never waits: it takes what may be sent from the accumulator, groups it by
leader and posts it. It is called when records came, when an answer came (in the connection's
reading task, so the next request leaves at once), and when a timer ends. What it lacks (a leader,
a connection, a producer id) it asks a background task for and goes on with the rest.

Retries, back-off and what each error code means for a batch are here; order and sequences are the
queue's business (`accumulator.py`), transactions that of `transaction_control.py`.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Protocol

import trio

from odradek.client.accumulator import Accumulator, PartitionQueue
from odradek.client.backoff import Backoff
from odradek.client.cluster import Cluster, is_retriable
from odradek.client.config import CODECS, MAX_IN_FLIGHT, ProducerConfig
from odradek.client.connection import Connection
from odradek.client.delivery import NO_PRODUCER, Batch, ProducerIdentity
from odradek.client.errors import (
    FENCED,
    Aborted,
    Fatal,
    OdradekError,
    Refused,
    Retriable,
    TimedOut,
    code_of,
    error_for,
    explain,
    transactional_error_for,
)
from odradek.client.metadata import LEADER_MOVED
from odradek.client.types import TopicPartition
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.apis.txn import INIT_PRODUCER_ID, InitProducerIdRequest
from odradek.protocol.errors import ErrorCode

PRODUCE_WITH_NAMES: Final = 12
"""Produce 13 says topics by id; a name is what the user meant, also after it was made anew."""
PURPOSE: Final = "produce"
EPOCH_MAX: Final = 32766
NEVER: Final = float("inf")
LOST_SEQUENCE: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}
)


class Gate(Protocol):
    """What a transaction says about sending."""

    @property
    def produce_at_most(self) -> int: ...

    def may_send(self) -> bool: ...

    def may_retry(self) -> bool: ...

    def admit(self, partition: TopicPartition) -> bool:
        """Whether the partition belongs to the transaction; if not yet, it is being added."""

    def in_doubt(self, error: OdradekError) -> None:
        """A broker refused the producer's epoch."""

    def lost(self, error: OdradekError, *, was_sequenced: bool) -> None:
        """A batch of the transaction will not be stored."""


class Sender:
    """Sends what the accumulator holds, until its cluster is closed."""

    def __init__(self, cluster: Cluster, config: ProducerConfig, accumulator: Accumulator) -> None:
        self.identity = NO_PRODUCER
        self.gate: Gate | None = None
        self._cluster = cluster
        self._config = config
        self._accumulator = accumulator
        self._codec = CODECS[config.compression]
        self._linger = config.linger_ms / 1000
        self._wake = trio.Event()
        self._flushing = 0
        self._is_pumping = False
        self._pump_again = False
        self._next_wake = NEVER
        self._armed = NEVER
        self._running: set[object] = set()
        self._backoffs: dict[object, Backoff] = {}
        """Pauses of background tasks that have failed, by their keys, until they succeed."""

    # Called by the producer

    def wake(self) -> None:
        self._wake.set()

    def start_flush(self) -> None:
        """Do not wait for company until `end_flush`."""
        self._flushing += 1
        self.wake()

    def end_flush(self) -> None:
        self._flushing -= 1

    def drop(self, error: OdradekError) -> bool:
        """Fail everything that is not in flight, at once; whether some of it had been sent."""
        dropped = self._not_in_flight()
        for batch in dropped:
            self._accumulator.give_up(batch, error.copy())
        return any(batch.is_sequenced for batch in dropped)

    def _not_in_flight(self) -> list[Batch]:
        in_flight = {
            batch for queue in self._accumulator.queues.values() for batch in queue.in_flight
        }
        return [batch for batch in self._accumulator.incomplete if batch not in in_flight]

    async def settled(self) -> None:
        """Until nothing is in flight."""
        while any(queue.in_flight for queue in self._accumulator.queues.values()):
            await self._accumulator.changed()

    async def run(self) -> None:
        """Serve timers and what was appended."""
        while True:
            self._armed = self._next_wake
            with trio.move_on_at(self._armed):
                await self._wake.wait()
            self._wake = trio.Event()
            self._expire(trio.current_time())
            if self._accumulator.active and self._cluster.is_stale:
                self._once("age", self._refresh_old)
            self.pump()

    # Sending

    def pump(self) -> None:
        """Send everything that may go now."""
        if self._is_pumping:
            self._pump_again = True
            return
        self._is_pumping = True
        try:
            self._pump_again = True
            while self._pump_again:
                self._pump_again = False
                self._pump_once(trio.current_time())
        finally:
            self._is_pumping = False
        if self._next_wake < self._armed:
            self.wake()

    def _pump_once(self, now: float) -> None:
        self._next_wake = NEVER
        active = self._accumulator.active
        if not self._accumulator.incomplete:
            return
        self._wake_at(next(iter(self._accumulator.incomplete)).deadline)
        if not active or not self._may_send():
            return
        by_connection: dict[Connection, list[Batch]] = {}
        for name, queue in list(active.items()):
            connection = self._way(name, queue, now)
            if connection is None:
                continue
            batch = self._take(queue, now)
            if batch is not None:
                by_connection.setdefault(connection, []).append(batch)
            if not queue.has_unsent:
                del active[name]
        for connection, batches in by_connection.items():
            self._post(connection, batches)
            # There may be more, and room for another request.
            self._pump_again = True

    def _wake_at(self, when: float) -> None:
        self._next_wake = min(self._next_wake, when)

    def _may_send(self) -> bool:
        if self.gate is not None:
            return self.gate.may_send()
        if not self._config.is_idempotent or self.identity.producer_id >= 0:
            return True
        self._once("producer id", self._obtain_identity)
        return False

    def _way(self, name: TopicPartition, queue: PartitionQueue, now: float) -> Connection | None:
        """The connection for a partition if it may send now; otherwise see to what is missing."""
        if queue.not_before > now:
            self._wake_at(queue.not_before)
            return None
        leader = self._cluster.metadata.leader(*name)
        if leader is None:
            self._once("metadata", self._refresh)
            return None
        connection = self._cluster.open_connection(leader.node_id, PURPOSE)
        if connection is None:
            node_id = leader.node_id
            self._once(node_id, lambda: self._connect(node_id))
            return None
        if connection.in_flight >= MAX_IN_FLIGHT:
            return None
        if self.gate is not None and not self.gate.admit(name):
            return None
        return connection

    def _take(self, queue: PartitionQueue, now: float) -> Batch | None:
        linger = 0.0 if self._flushing else self._linger
        due = queue.open.opened_at + linger if queue.open is not None else NEVER
        batch = queue.take(
            self.identity,
            self._codec,
            is_transactional=self.gate is not None,
            takes_open=due <= now,
        )
        # What is due and was not taken waits for an answer, which pumps.
        if batch is None and due > now:
            self._wake_at(due)
        return batch

    def _post(self, connection: Connection, batches: list[Batch]) -> None:
        """Requests of at most `request_bytes` each, as long as the connection takes more."""
        rest = batches
        while rest:
            size_bytes = 0
            count = 0
            for batch in rest:
                size_bytes += len(batch.encoded or b"")
                if count and size_bytes > self._config.request_bytes:
                    break
                count += 1
            self._post_one(connection, rest[:count])
            rest = rest[count:]

    def _post_one(self, connection: Connection, batches: list[Batch]) -> None:
        def answered(response: ProduceResponse | None, error: OdradekError | None) -> None:
            self._answered(batches, response, error)
            self.pump()

        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            topic, partition = batch.queue.name
            data = PartitionProduceData(index=partition, records=batch.encoded)
            topics.setdefault(topic, []).append(data)
        request = ProduceRequest(
            transactional_id=self._config.transactional_id,
            acks=self._config.acks_number,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=tuple(
                TopicProduceData(name=name, partition_data=tuple(data))
                for name, data in topics.items()
            ),
        )
        at_most = self.gate.produce_at_most if self.gate is not None else PRODUCE_WITH_NAMES
        try:
            version = connection.version_of(PRODUCE, at_most)
            connection.post(PRODUCE, version, request, answered, is_answered=self._config.acks != 0)
        except OdradekError as error:
            self._answered(batches, None, error)

    # Answers

    def _answered(
        self, batches: list[Batch], response: ProduceResponse | None, error: OdradekError | None
    ) -> None:
        results: dict[tuple[str, int], PartitionProduceResponse] = {}
        for topic in response.responses if response is not None else ():
            for one in topic.partition_responses:
                results[topic.name, one.index] = one
        for batch in batches:
            queue = batch.queue
            self._accumulator.answered(batch)
            if error is not None:
                self._attempt_failed(batch, error)
            elif self._config.acks == 0:
                self._stored(batch, -1, -1)
            elif (result := results.get(queue.name)) is None:
                self._attempt_failed(batch, Retriable(f"no answer about {queue.name}"))
            elif result.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._stored(batch, result.base_offset, result.log_append_time_ms)
            else:
                self._refused(batch, code_of(result.error_code), result.error_message)
            if queue.has_unsent:
                self._accumulator.active[queue.name] = queue

    def _stored(self, batch: Batch, base_offset: int, log_append_time_ms: int) -> None:
        batch.queue.acknowledged()
        if not batch.is_done:
            batch.base_offset = base_offset
            batch.log_append_time_ms = log_append_time_ms
            self._accumulator.settle(batch, None)

    def _attempt_failed(self, batch: Batch, error: OdradekError) -> None:
        """The connection was lost, or nobody can say what became of the batch."""
        if not isinstance(error, Retriable):
            self._give_up(batch, error)
            return
        self._cluster.metadata.forget_age()
        self._try_again(batch, error)

    def _refused(self, batch: Batch, code: ErrorCode, said: str | None) -> None:
        queue = batch.queue
        doing = f"writing to {queue.name}"
        if code in LOST_SEQUENCE and batch.is_sequenced:
            self._sequence_refused(batch, error_for(code, doing, said))
        elif code in FENCED and self.gate is not None:
            error = transactional_error_for(code, doing, said)
            self._try_again(batch, error)
            self.gate.in_doubt(error)
        elif code in FENCED:
            self._give_up(batch, Fatal(explain(code, doing, said), code=code))
        elif is_retriable(code):
            if code in LEADER_MOVED:
                self._cluster.metadata.forget_age()
                self._once("metadata", self._refresh)
            self._try_again(batch, error_for(code, doing, said))
        elif self.gate is not None:
            self._give_up(batch, transactional_error_for(code, doing, said))
        else:
            self._give_up(batch, error_for(code, doing, said))

    def _sequence_refused(self, batch: Batch, error: OdradekError) -> None:
        """Something before this batch is missing. See the top of `accumulator.py`."""
        queue = batch.queue
        if not queue.is_first(batch):
            self._try_again(batch, error)
        elif self.gate is not None:
            self._give_up(batch, error)
        else:
            if queue.identity == self.identity:
                self._raise_epoch()
            queue.restart()
            self._try_again(batch, error)

    def _raise_epoch(self) -> None:
        """A new epoch begins at sequence 0 in every partition; without transactions it is ours to
        raise, and a new producer id is needed only when epochs run out."""
        producer_id, epoch = self.identity
        if epoch >= EPOCH_MAX:
            self.identity = NO_PRODUCER
        else:
            self.identity = ProducerIdentity(producer_id, epoch + 1)

    def _try_again(self, batch: Batch, error: OdradekError) -> None:
        if batch.is_done:
            return
        queue = batch.queue
        now = trio.current_time()
        if self.gate is not None and not self.gate.may_retry():
            self._give_up(batch, Aborted(f"the transaction is not going on: {error}"))
        elif now >= batch.deadline:
            self._give_up(batch, self._too_late(batch, error))
        else:
            queue.put_back(batch)
            name = batch.queue.name
            self._cluster.journal.retrying(f"writing to {name}", batch.opened_at, error)
            pause = Backoff(self._config, queue.attempts).next_seconds(error.code)
            queue.attempts += 1
            queue.not_before = now + pause

    def _too_late(self, batch: Batch, last: OdradekError | None) -> TimedOut:
        reason = f" ({last})" if last else ""
        sent = (
            "it may or may not be stored" if batch.is_sequenced or batch.order >= 0 else "not sent"
        )
        return TimedOut(
            f"{batch.count} records for {batch.queue.name} were not acknowledged within "
            f"{self._config.delivery_timeout_ms} ms, {sent}{reason}",
            code=last.code if last else None,
        )

    def _give_up(self, batch: Batch, error: OdradekError) -> None:
        if batch.is_done:
            return
        self._accumulator.give_up(batch, error)
        if self.gate is not None:
            self.gate.lost(error, was_sequenced=batch.is_sequenced)

    def _give_up_all(self, error: OdradekError) -> None:
        for batch in self._not_in_flight():
            self._give_up(batch, error.copy())

    def _expire(self, now: float) -> None:
        for batch in list(self._accumulator.incomplete):
            if batch.deadline > now:
                break
            self._give_up(batch, self._too_late(batch, None))

    # What runs beside

    def _once(self, key: object, task: Callable[[], Awaitable[None]]) -> None:
        """Start a background task unless it runs already; pump when it is over."""
        if key not in self._running and not self._cluster.is_closed:
            self._running.add(key)
            self._cluster.spawn(self._run_once, key, task)

    async def _run_once(self, key: object, task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        finally:
            self._running.discard(key)
        self.pump()
        self.wake()

    async def _refresh(self) -> None:
        """Until every partition with something to send has a leader."""
        backoff = Backoff(self._config)
        while self._accumulator.active:
            await self._refresh_quietly({name.topic for name in self._accumulator.active})
            self._refuse_missing()
            if all(self._cluster.metadata.leader(*name) for name in self._accumulator.active):
                return
            await trio.sleep(backoff.next_seconds())

    async def _refresh_old(self) -> None:
        if await self._refresh_quietly(self._cluster.metadata.topics):
            self._backoffs.pop("age", None)
        else:
            await self._pause("age")

    async def _pause(self, key: object) -> None:
        """Wait before a background task that failed may run again, longer each time."""
        await trio.sleep(self._backoffs.setdefault(key, Backoff(self._config)).next_seconds())

    def _refuse_missing(self) -> None:
        """Fail what goes to partitions that the topic does not have."""
        for name, queue in list(self._accumulator.active.items()):
            if (
                name.topic in self._cluster.metadata.topics
                and self._cluster.metadata.leader(*name) is None
            ):
                error = self._cluster.metadata.no_leader(name)
                if isinstance(error, Refused):
                    for batch in [
                        one for one in self._accumulator.incomplete if one.queue is queue
                    ]:
                        self._give_up(batch, error.copy())

    async def _connect(self, node_id: int) -> None:
        try:
            await self._cluster.connection(node_id, PURPOSE)
            self._backoffs.pop(node_id, None)
        except Retriable:
            self._cluster.metadata.forget_age()
            await self._pause(node_id)
            await self._refresh_quietly({name.topic for name in self._accumulator.active})
        except OdradekError as error:
            self._give_up_all(error)

    async def _refresh_quietly(self, topics: Iterable[str]) -> bool:
        """Whether there was an answer; who needs one tries again, until the batches' deadline."""
        try:
            await self._cluster.refresh(topics)
        except OdradekError:  # also Refused: a broker may come back with other versions
            return False
        return True

    async def _obtain_identity(self) -> None:
        """A producer id, from any broker."""

        async def attempt() -> ProducerIdentity:
            request = InitProducerIdRequest(
                transactional_id=None,
                transaction_timeout_ms=self._config.transaction_timeout_ms,
            )
            answer = await self._cluster.ask(None, INIT_PRODUCER_ID, request)
            self._cluster.check(answer.error_code, "asking for a producer id")
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        try:
            self.identity = await self._cluster.retrying("asking for a producer id", attempt)
        except Retriable:
            return  # the next pump asks again, until the batches' own deadline
        except OdradekError as error:
            self._give_up_all(error)
