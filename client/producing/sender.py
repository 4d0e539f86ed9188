"""The sender: it sends batches to the leaders of their partitions and handles the answers.

`pump` does the work and never waits. It takes the batches that may be sent from the accumulator,
groups them by leader and posts them. Three things call it: new records, an answer (in the
connection's reading task, so the next request leaves at once), and a timer. If a leader or a
connection is missing, `pump` starts a background task that obtains it, and goes on with the other
partitions.

Retries and back-off are here. Order and sequences are in `batches.py`. The producer's session
(`session.py`) has the identity, and decides what an error means for a batch.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

import trio

from odradek.client.cluster.backoff import Backoff
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.connection import BrokerConnection
from odradek.client.cluster.metadata import LEADER_MOVED, LeaderAndEpoch, Node
from odradek.client.config import CODECS, MAX_IN_FLIGHT, ProducerConfig
from odradek.client.errors import (
    OdradekError,
    Refused,
    Retriable,
    TimedOut,
    code_of,
    error_for,
    transactional_error_for,
)
from odradek.client.producing.accumulator import Accumulator
from odradek.client.producing.batches import PartitionQueue, ProducerBatch
from odradek.client.producing.session import ProducerSession
from odradek.client.types import TopicPartition
from odradek.protocol.apis.produce import NodeEndpoint, PartitionProduceResponse
from odradek.protocol.errors import ErrorCode
from odradek.protocol.produce_batches import PRODUCE_BATCHES, Batches, Results

PURPOSE: Final = "produce"
NEVER: Final = float("inf")


class Sender:
    """Send the accumulator's batches until the cluster is closed."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        accumulator: Accumulator,
        session: ProducerSession,
    ) -> None:
        self._session = session
        self._is_transactional = config.transactional_id is not None
        self._cluster = cluster
        self._config = config
        self._accumulator = accumulator
        self._counters = accumulator.counters
        self._acks = config.acks_number
        self._codec = CODECS[config.compression]
        self._linger = config.linger_ms / 1000
        self._is_pumping = False
        self._pump_again = False
        self._next_wake = NEVER
        self._timer = trio.CancelScope()
        self._is_one_by_one = False
        """The last batch that was stored had one record, and is in no transaction."""
        self._running: set[object] = set()
        self._backoffs: dict[object, Backoff] = {}
        """The back-off of each background task that has failed, by key, until it succeeds."""

    async def run(self) -> None:
        """Pump when a timer ends or a record was appended, until the task is cancelled."""
        while True:
            with trio.CancelScope(deadline=self._next_wake) as self._timer:
                while True:
                    await self._accumulator.wait_woken()
                    self.pump()
            self._expire(trio.current_time())
            self.pump()

    def begin(self) -> None:
        """Send a batch that was begun just now, or wake the task that sends it.

        The task runs after the other tasks of the program that send now, and their records share
        the batch. A program that awaits each record before the next one has no others: its record
        is sent at once.
        """
        if self._is_one_by_one and len(self._accumulator.incomplete) == 1:
            self.pump()
        else:
            self._accumulator.wake()

    # Sending

    def pump(self) -> None:
        """Send every batch that may be sent now.

        A call from inside another call only asks the outer one for another round.
        """
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
        # A time that is not needed any more stays set: to wake once too often costs less.
        if self._next_wake < self._timer.deadline:
            self._timer.deadline = self._next_wake

    def _pump_once(self, now: float) -> None:
        active = self._accumulator.active
        if not self._accumulator.incomplete:
            self._next_wake = NEVER
            return
        self._next_wake = next(iter(self._accumulator.incomplete)).deadline
        if not active or not self._session.may_send():
            return
        if now > self._cluster.stale_from:
            self._once("age", self._refresh_old)
        by_connection: dict[BrokerConnection, list[ProducerBatch]] = {}
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
        if by_connection and active:
            # The partitions may have more batches, and the connection room for another request.
            self._pump_again = True

    def _wake_at(self, when: float) -> None:
        self._next_wake = min(self._next_wake, when)

    def _way(
        self, name: TopicPartition, queue: PartitionQueue, now: float
    ) -> BrokerConnection | None:
        """Return the connection to the partition's leader, or None if nothing may be sent now.

        Start what is missing: a timer, a metadata request, or a connection.
        """
        if queue.not_before > now:
            self._wake_at(queue.not_before)
            return None
        leader = self._cluster.metadata.leader(*name)
        if leader is None:
            self._once("metadata", self._refresh)
            return None
        connection = self._cluster.connections.find(leader.node_id, PURPOSE)
        if connection is None:
            node_id = leader.node_id
            self._once(node_id, lambda: self._connect(node_id))
            return None
        if connection.in_flight >= MAX_IN_FLIGHT:
            return None
        return connection if self._session.admit(name) else None

    def _take(self, queue: PartitionQueue, now: float) -> ProducerBatch | None:
        linger = 0.0 if self._accumulator.is_flushing else self._linger
        due = queue.open.opened_at + linger if queue.open is not None else NEVER
        batch = queue.take(
            self._session.identity,
            self._codec,
            is_transactional=self._is_transactional,
            takes_open=due <= now,
        )
        # A batch that is due and was not taken waits for an answer, and the answer pumps again.
        if batch is None and due > now:
            self._wake_at(due)
        return batch

    def _post(self, connection: BrokerConnection, batches: list[ProducerBatch]) -> None:
        """Post the batches in requests of at most `request_bytes`, each with at least one batch."""
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

    def _post_one(self, connection: BrokerConnection, batches: list[ProducerBatch]) -> None:
        config = self._config
        encoded = [(batch.queue.name, batch.encoded or b"") for batch in batches]
        request = Batches(config.transactional_id, self._acks, config.request_timeout_ms, encoded)
        api = PRODUCE_BATCHES
        try:
            version = connection.version_of(api, self._session.produce_at_most)
            answered = partial(self._on_answered, batches, trio.current_time())
            connection.post(api, version, request, answered, is_answered=self._acks != 0)
        except OdradekError as error:
            self._on_answered(batches, None, None, error)

    # Answers

    def _on_answered(
        self,
        batches: list[ProducerBatch],
        since: float | None,
        results: Results | None,
        error: OdradekError | None,
    ) -> None:
        """Handle the answer to a request, or its error. It was sent at `since`, if it was."""
        if since is not None and results is not None:
            self._counters.requests.note(since, trio.current_time())
        for batch in batches:
            queue = batch.queue
            self._accumulator.note_answered(batch)
            if error is not None:
                self._on_unanswered(batch, error)
            elif self._acks == 0:
                self._on_stored(batch, -1, -1)
            elif results is None or (result := results.of.get(queue.name)) is None:
                self._on_unanswered(batch, Retriable(f"no answer about {queue.name}"))
            # A duplicate is stored: an earlier attempt succeeded, and its answer was lost. The
            # offset may be unknown by now (-1).
            elif result.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._on_stored(batch, result.base_offset, result.log_append_time_ms)
            else:
                self._on_refused(batch, result, results.node_endpoints)
            if queue.has_unsent:
                self._accumulator.active[queue.name] = queue
        if self._accumulator.active:
            self.pump()

    def _on_stored(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        self._is_one_by_one = batch.count == 1 and not self._is_transactional
        batch.queue.note_acknowledged()
        self._session.on_stored(batch.queue.name)
        if not batch.is_done:
            batch.base_offset = base_offset
            batch.log_append_time_ms = log_append_time_ms
            self._accumulator.settle(batch, None)

    def _on_unanswered(self, batch: ProducerBatch, error: OdradekError) -> None:
        """Handle a batch without an answer: the connection was lost, or the answer omits it."""
        if isinstance(error, Retriable):
            self._cluster.metadata.forget_age()
        self._attempt_failed(batch, error)

    def _on_refused(
        self, batch: ProducerBatch, result: PartitionProduceResponse, named: Iterable[NodeEndpoint]
    ) -> None:
        """Handle a refusal. `named` are the leaders that it names (KIP-951)."""
        code, queue = code_of(result.error_code), batch.queue
        metadata = self._cluster.metadata
        has_moved = metadata.learn_leader(
            queue.name,
            LeaderAndEpoch(result.current_leader.leader_id, result.current_leader.leader_epoch),
            [Node(node.node_id, node.host, node.port, node.rack) for node in named],
        )
        if code in LEADER_MOVED and not has_moved:
            metadata.forget_age()
            self._once("metadata", self._refresh)
        make = transactional_error_for if self._is_transactional else error_for
        self._attempt_failed(batch, make(code, f"writing to {queue.name}", result.error_message))
        if has_moved:
            queue.not_before = trio.current_time()

    def _attempt_failed(self, batch: ProducerBatch, error: OdradekError) -> None:
        """Send the batch again, or give it up, as the session decides."""
        self._counters.errors.note(error)
        final = self._session.on_refused(batch, error)
        if final is None:
            self._try_again(batch, error)
        else:
            self._give_up(batch, final)

    def _try_again(self, batch: ProducerBatch, error: OdradekError) -> None:
        if batch.is_done:
            return
        queue = batch.queue
        now = trio.current_time()
        if now >= batch.deadline:
            self._give_up(batch, self._too_late(batch, error))
        else:
            queue.put_back(batch)
            self._counters.retries += 1
            name = batch.queue.name
            self._cluster.journal.retrying(f"writing to {name}", batch.opened_at, error)
            pause = Backoff(self._config, queue.attempts).next_seconds(error.code)
            queue.attempts += 1
            queue.not_before = now + pause

    def _too_late(self, batch: ProducerBatch, last: OdradekError | None) -> TimedOut:
        reason = f" ({last})" if last else ""
        sent = (
            "it may or may not be stored" if batch.is_sequenced or batch.order >= 0 else "not sent"
        )
        return TimedOut(
            f"{batch.count} records for {batch.queue.name} were not acknowledged within "
            f"{self._config.delivery_timeout_ms} ms, {sent}{reason}",
            code=last.code if last else None,
        )

    def _give_up(self, batch: ProducerBatch, error: OdradekError) -> None:
        if batch.is_done:
            return
        self._accumulator.give_up(batch, error)
        self._session.on_failed(batch, error)

    def _give_up_all(self, error: OdradekError) -> None:
        for batch in self._accumulator.not_in_flight():
            self._give_up(batch, error.copy())

    def _expire(self, now: float) -> None:
        for batch in list(self._accumulator.incomplete):
            if batch.deadline > now:
                break
            self._give_up(batch, self._too_late(batch, None))

    # Background tasks

    def _once(self, key: object, task: Callable[[], Awaitable[None]]) -> None:
        """Start a background task unless one with this key runs. Pump when it has ended."""
        if key not in self._running and not self._cluster.tasks.is_closed:
            self._running.add(key)
            self._cluster.tasks.spawn(self._run_once, key, task)

    async def _run_once(self, key: object, task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        finally:
            self._running.discard(key)
        self.pump()
        self._accumulator.wake()

    async def _refresh(self) -> None:
        """Refresh the metadata until every partition with unsent batches has a leader."""
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
        """Wait before a failed background task may run again. Each pause is longer."""
        await trio.sleep(self._backoffs.setdefault(key, Backoff(self._config)).next_seconds())

    def _refuse_missing(self) -> None:
        """Fail the batches of partitions that do not exist in their topic."""
        for name, queue in list(self._accumulator.active.items()):
            if (
                name.topic in self._cluster.metadata.topics
                and self._cluster.metadata.leader(*name) is None
            ):
                error = self._cluster.metadata.no_leader(name)
                if isinstance(error, Refused):
                    for batch in list(self._accumulator.incomplete):
                        if batch.queue is queue:
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
        """Refresh the metadata. Return True if a broker answered."""
        try:
            await self._cluster.refresh(topics)
        except OdradekError:  # also Refused: after an upgrade a broker may serve other versions
            return False
        return True
