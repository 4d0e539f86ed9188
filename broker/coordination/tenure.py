"""Leading a state partition for one leader epoch, as the coordinators of both kinds do.

What a coordinator remembers is valid only while this broker leads the partition that it was read
from. So all of it belongs to a `Tenure`. A tenure begins when the partition is loaded, ends when
the broker loses the leadership or gets it anew, and is never revived. An operation that began under
one tenure can only change that tenure's own memory, which is not used after its end (KAFKA-9235,
KAFKA-9307, KAFKA-15468, KAFKA-5280). The leader epoch is the coordinator epoch of every decision.

`Tenures` holds the tenures of one state topic and the rules of loading.
"""

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

import trio

from odradek.broker.coordination.state_partition import StatePartition, StatePartitions
from odradek.protocol.errors import ErrorCode, KafkaError

LOADED_AT_ONCE: Final = 2
"""Partitions: one may wait for the disk while the other is decoded. With more, the first partition
would be loaded hardly earlier than the last."""

CHECKED_AT_ONCE: Final = 1_000
"""Ids between two checkpoints, about 2 ms."""

DURABLE_SECONDS: Final = 10.0
"""The time for a record to become durable. A client that gives up closes its connection, and with
it everything that waits behind its request; most give up after 30 s."""

LOG_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""The errors that a coordinator returns when its log did not take a record."""


class MisplacedRecords(KafkaError):
    """A state partition has records of an id that another partition keeps."""

    def __init__(self, name: str, identifier: str, right_name: str) -> None:
        super().__init__(
            ErrorCode.CORRUPT_MESSAGE,
            f"{name} has records of {identifier!r}, which {right_name} keeps: the log may be that "
            "of another partition. Stop the broker, and put back the files that were there",
        )


class Tenure:
    """One leader epoch of one state partition. Subclasses add what is read from the partition."""

    def __init__(self, partition: StatePartition, name: str) -> None:
        self.partition: Final = partition
        self.name: Final = name
        """The topic and the partition, such as `__transaction_state-7`."""
        self.coordinator_epoch: Final = partition.leader_epoch
        self.is_loaded = False
        self.is_over = False
        self._scopes: Final[dict[trio.CancelScope, None]] = {}

    @contextmanager
    def bound(
        self, *, shield: bool = False, deadline: float = math.inf
    ) -> Iterator[trio.CancelScope]:
        """Cancel the block, without an exception, when the tenure ends, or at the deadline."""
        with trio.CancelScope(shield=shield, deadline=deadline) as scope:
            # invariant tenures 1
            if self.is_over:
                scope.cancel()
            self._scopes[scope] = None
            try:
                yield scope
            finally:
                del self._scopes[scope]

    async def wait_committed(self, next_offset: int) -> None:
        """Wait until everything below `next_offset` is durable.

        Raises KafkaError: what the partition raises, NOT_COORDINATOR if the tenure has ended, or
        REQUEST_TIMED_OUT if that takes too long. What is in the log may become durable all the
        same, as after any failure.
        """
        # Shielded from a client that disconnects: the record is in the log and may survive, and
        # memory must follow it. After the end of the tenure memory must not follow: another
        # coordinator may have decided otherwise meanwhile (KAFKA-9307).
        # invariant tenures 1: What belongs to a tenure ends with it: nothing that began before it
        # ended may append or send after it.
        # plant KAFKA-9235
        # plant a completion goes on after its tenure has ended
        # plant a decision of a tenure that has ended is written under the next one
        deadline = trio.current_time() + DURABLE_SECONDS
        with self.bound(shield=True, deadline=deadline) as waiting:
            await self.partition.wait_committed(next_offset)
        self.check()
        if waiting.cancelled_caught:
            message = f"{self.name} has no record on enough replicas after {DURABLE_SECONDS:g} s"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)

    async def prove(self) -> None:
        """Wait for proof that what is remembered was the newest when this was called.

        Without an append nothing else shows it: a coordinator that is cut off from the others does
        not know yet that one of them has taken its place, and may have decided differently. Raises
        KafkaError, as `wait_committed`.
        """
        try:
            # invariant tenures 3
            await self.partition.prove_lead()
        except KafkaError as error:
            raise KafkaError(LOG_ERRORS.get(error.code, error.code), error.message) from error
        self.check()

    def check(self) -> None:
        """Raise KafkaError(NOT_COORDINATOR) if the tenure has ended."""
        if self.is_over:
            message = f"this broker does not coordinate {self.name} any more"
            raise KafkaError(ErrorCode.NOT_COORDINATOR, message)

    def end(self) -> None:
        """Stop everything that was begun under this tenure."""
        self.is_over = True
        for scope in list(self._scopes):
            scope.cancel()


T = TypeVar("T", bound=Tenure)


class Tenures(Generic[T]):
    """The partitions of one state topic that this broker coordinates now.

    `index_of` returns the partition that keeps a transactional id or a group. `begin` makes a
    tenure of a partition and its name.
    """

    def __init__(
        self,
        topic: str,
        index_of: Callable[[str], int],
        state_partitions: StatePartitions,
        begin: Callable[[StatePartition, str], T],
    ) -> None:
        self._topic = topic
        self.index_of: Final = index_of
        self._state_partitions = state_partitions
        self._begin = begin
        self._loading = trio.CapacityLimiter(LOADED_AT_ONCE)
        self._tenures: dict[int, T] = {}

    async def load(self, index: int, read: Callable[[T], Awaitable[None]]) -> None:
        """Begin a tenure, and have `read` fill it from the partition.

        Do nothing if the current tenure has a newer leader epoch. Return early if the tenure ends
        meanwhile. Raises KafkaError if the partition cannot be read; there is no tenure then.
        """
        tenure = self._begin(self._state_partitions.get(index), self._name(index))
        # Loads of two elections may run in any order. The older one must not replace what the newer
        # one has read (KAFKA-15468).
        # invariant tenures 2: An older leader epoch never replaces the tenure of a newer one.
        # plant KAFKA-15468
        previous = self._tenures.get(index)
        if previous is not None and previous.coordinator_epoch > tenure.coordinator_epoch:
            return
        self.unload(index)
        self._tenures[index] = tenure
        try:
            with tenure.bound():
                # A decision that is read here may be lost if this broker loses the lead before its
                # followers have it. Markers that were sent for it would tear its transaction.
                await tenure.partition.wait_committed()
                async with self._loading:
                    await read(tenure)
                tenure.is_loaded = True
        except KafkaError:
            if not tenure.is_over:
                raise
        finally:
            if not (tenure.is_loaded or tenure.is_over):
                self.unload(index)

    async def check_places(self, tenure: T, identifiers: Iterable[str]) -> None:
        """Check that the partition of a tenure keeps all these ids. Raises MisplacedRecords.

        The log of another partition would be read without an error. Its ids would get a second
        owner, and those of this partition none of what was decided for them.
        """
        for count, identifier in enumerate(identifiers, 1):
            # invariant tenures 4: A coordinator acts on no id that another partition keeps.
            # plant a coordinator takes up the transactions of another partition
            # plant a coordinator takes up the groups of another partition
            name = self._name(self.index_of(identifier))
            if name != tenure.name:
                raise MisplacedRecords(tenure.name, identifier, name)
            if count % CHECKED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()

    def unload(self, index: int) -> None:
        """End the tenure of a partition, if there is one: this broker does not lead it any more."""
        tenure = self._tenures.pop(index, None)
        if tenure is not None:
            tenure.end()

    def unload_all(self) -> None:
        for index in list(self._tenures):
            self.unload(index)

    def find(self, key: str) -> T:
        """Return the tenure of the partition that keeps `key`.

        Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        index = self.index_of(key)
        tenure = self._tenures.get(index)
        if tenure is None:
            message = f"this broker does not coordinate {self._name(index)}"
            raise KafkaError(ErrorCode.NOT_COORDINATOR, message)
        if not tenure.is_loaded:
            message = f"{tenure.name} is being read; retry the request"
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message)
        return tenure

    def get(self, index: int) -> T | None:
        """Return the tenure of a partition, loaded or not; None if there is none."""
        return self._tenures.get(index)

    def __iter__(self) -> Iterator[T]:
        """Yield all tenures; they may begin and end meanwhile."""
        return (tenure for tenure in list(self._tenures.values()) if not tenure.is_over)

    @property
    def is_loading(self) -> bool:
        return any(not tenure.is_loaded for tenure in self)

    def _name(self, index: int) -> str:
        return f"{self._topic}-{index}"
