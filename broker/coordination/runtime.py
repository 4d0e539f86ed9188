"""The one way in which coordinators change what they know: append, replay, answer.

A coordinator's state is what its log says. An *operation* is a synchronous function of that state:
it checks a request, and returns records, the *change* that they stand for, and an answer.

    batch, change, answer = ...            # no checkpoint from the last check to the append
    next_offset = tenure.append(batch, change)
    await tenure.wait_committed(next_offset)
    return answer

`append` writes the batch and puts the change into the timeline. When everything up to the batch is
committed, `replay` applies the change, and the operation returns its answer. Loading calls the same
`replay`, so a restart leads to the same state. A change stands for all records of its batch.

Why nothing is rolled back. Kafka's `CoordinatorRuntime` replays records before it appends them, and
so needs the snapshots of its timeline to undo them if the log refuses the batch. Here an append is
synchronous, and comes first:

- The log refuses the batch: `append` raises. The change was never anywhere, and the state is still
  the last committed one.
- The batch is in the log: the change waits in the timeline. Readers see the committed state only.
  The change can be lost in one way, with the leadership of the partition, and the whole tenure ends
  then: memory and timeline are dropped, and each waiter gets NOT_COORDINATOR.
- The wait fails although the tenure goes on, because replicas are missing for DURABLE_SECONDS. Then
  nobody knows. The change stays in the timeline, and takes effect if its records are committed
  after all. A coordinator whose next decision would supersede the change calls `forget`.

Two operations at once. The next operation on the same thing must not be decided on a state that the
timeline is about to change. There are two ways, and `at_once` chooses:

- It waits, and the change is replayed when it is committed. Transactions do so: an id whose change
  is under way is pending, and its requests wait. So do the offsets of groups, of which the later
  one wins whatever was there before.
- It is decided on the newest state. With `at_once` the change is replayed in the same synchronous
  step as its append. What is answered or shown of such a state waits for the offset of its newest
  record. Consumer groups do so, whose members come by the hundred, and so do offsets inside a
  transaction, which no reader sees before their marker. The end of a decided transaction does so as
  well, and waits for nothing (`Ledger.complete`).

In both cases the state is the replay of a beginning of the log, the committed one or all of it, and
each operation is decided on everything that stands before its records.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

from odradek.broker.coordination.state_partition import StatePartition
from odradek.broker.coordination.tenure import LOG_ERRORS, Tenure
from odradek.broker.coordination.timeline import Timeline
from odradek.broker.environment.turns import STEPS_PER_TURN, Turns
from odradek.broker.environment.work import Work, whole
from odradek.late import dataclass
from odradek.protocol.errors import KafkaError
from odradek.protocol.record import BatchBuilder

C = TypeVar("C")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendingProducer:
    """The producer in whose transaction records are appended, with the verdict about it.

    `verified_after` is as in `StatePartition.append_batch`.
    """

    producer_id: int
    producer_epoch: int
    verified_after: int


class Runtime(Tenure, Generic[C]):
    """A tenure that writes. Subclasses have the state, and say how a change is replayed."""

    def __init__(self, partition: StatePartition, name: str) -> None:
        super().__init__(partition, name)
        self._timeline: Final[Timeline[C]] = Timeline(self.replay)
        self._committed_below = 0
        self._replayed_below = 0

    def replay(self, change: C, base_offset: int) -> Work[None]:
        """Apply a change, whose first record has this offset."""
        raise NotImplementedError

    def refusal(self, error: KafkaError, change: C | None) -> KafkaError:
        """Return the error for a client whose change the log did not take.

        `change` is None if the log has the records, and does not know whether they are committed.
        """
        return KafkaError(LOG_ERRORS.get(error.code, error.code), error.message)

    # Writing

    def append(
        self,
        batch: BatchBuilder,
        change: C | None = None,
        *,
        at_once: bool = False,
        flush_later: bool = False,
        producer: AppendingProducer | None = None,
    ) -> int:
        """Append one batch, whose records have times, and return the offset after it.

        `change` is replayed when the batch is committed; `at_once`: in this call. `flush_later` is
        as in `StatePartition.append_batch`. With `producer` the batch is a part of that producer's
        transaction. Raises KafkaError, made by `refusal`; then nothing is written and nothing has
        changed.
        """
        try:
            # invariant tenures 1
            # A newer tenure may lead the same partition, and has not seen this decision.
            self.check()
            if producer is None:
                appended = self.partition.append_batch(batch, flush_later=flush_later)
            else:
                appended = self.partition.append_batch(
                    batch,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    base_sequence=0,  # in every batch, as in Kafka; no leader checks it here
                    is_transactional=True,
                    verified_after=producer.verified_after,
                )
        except KafkaError as error:
            raise self.refusal(error, change) from error
        next_offset = appended.last_offset + 1
        if change is None:
            pass
        elif at_once:
            whole(self.replay(change, appended.base_offset))
        else:
            # invariant durable 1: A transaction's state is visible only when its record is durable.
            # Complete* alone counts when it is appended: it follows from the durable Prepare* and
            # the markers, and the next record of its id is durable only after it.
            # plant KAFKA-9666
            # plant a transaction is complete although the log refused its record
            # plant a completion that nothing follows never gets to the disk
            # plant the record after a completion counts when it is appended as well
            # tests/broker/txn/test_crashed_completions.py
            # plant a change takes effect before it is committed
            # plant a commit brings changes into effect that stand behind it
            self._timeline.add(change, appended.base_offset, next_offset)
        return next_offset

    async def wait_committed(self, next_offset: int) -> None:
        """Wait until everything below `next_offset` is committed and replayed.

        Raises KafkaError, made by `refusal`: NOT_COORDINATOR if the tenure has ended,
        REQUEST_TIMED_OUT after DURABLE_SECONDS, or what the partition raises. If the tenure goes
        on, the change may take effect later.
        """
        if next_offset <= self._replayed_below:
            return
        await self._wait_in_log(next_offset)
        work = self._replayed(next_offset)
        # Nearly every change takes less than a turn, and is replayed without a checkpoint. The rest
        # is shielded as the wait is: those that wait behind this change need it, too.
        if next(islice(work, STEPS_PER_TURN, None), None) is not None:
            turns = Turns()
            with self.bound(shield=True):
                await turns.take(STEPS_PER_TURN)
                await turns.do(work)
            self.check()

    async def wait_noted(self, next_offset: int) -> None:
        """Wait until everything below `next_offset` is committed, and note it.

        While the log is being read, the reader may not have come to the records that stand before.
        `replay_committed` then replays the change behind them. Raises as `wait_committed`.
        """
        await self._wait_in_log(next_offset)
        self.note_committed(next_offset)

    async def _wait_in_log(self, next_offset: int) -> None:
        try:
            await super().wait_committed(next_offset)
        except KafkaError as error:
            # Another task may have found in the same moment that it is committed.
            if self.is_over or next_offset > self._committed_below:
                raise self.refusal(error, None) from error
        self._committed_below = max(self._committed_below, next_offset)

    async def write(
        self, batch: BatchBuilder, change: C | None = None, *, at_once: bool = False
    ) -> None:
        """Append a batch and wait until it is committed. Raises KafkaError as both do."""
        await self.wait_committed(self.append(batch, change, at_once=at_once))

    def forget(self, change: C) -> None:
        """Drop a change in the timeline, whose records the next ones supersede."""
        self._timeline.forget(change)

    # What others append

    def note_appended(self, change: C, base_offset: int, next_offset: int) -> None:
        """Take the change of records that are in the log already, and are not committed."""
        self._timeline.add(change, base_offset, next_offset)

    def note_committed(self, next_offset: int) -> None:
        """Replay what stands below `next_offset`, which is committed."""
        # While the log is being read, the reader may not have come to these records.
        # `replay_committed` then replays them, in their order.
        self._committed_below = max(self._committed_below, next_offset)
        if self.is_loaded:
            whole(self._replayed(next_offset))

    # Reading

    def uncommitted(self) -> Iterator[C]:
        """Yield the changes in the log that are not replayed, in log order."""
        return iter(self._timeline)

    def replay_committed(self) -> None:
        """Replay what was committed while the log was being read."""
        whole(self._replayed(self._committed_below))

    def _replayed(self, next_offset: int) -> Work[None]:
        yield from self._timeline.replayed_below(next_offset)
        self._replayed_below = max(self._replayed_below, next_offset)

    def end(self) -> None:
        """Stop everything that was begun under this tenure, and drop what is not committed."""
        super().end()
        self._timeline.clear()
