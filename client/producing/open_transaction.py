"""The state of one transaction in its producer.

`TransactionalSession` makes a new `OpenTransaction` at each begin, so nothing of one transaction
can be left over for the next one. The user's handle keeps the same object: a handle whose object is
not the session's any more belongs to an earlier transaction.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field

import trio

from odradek.client.errors import OdradekError
from odradek.client.producing.prepared import PreparedTransaction
from odradek.client.types import TopicPartition
from odradek.late import dataclass


@dataclass(slots=True, eq=False)
class OpenTransaction:
    """One transaction, from its begin until the next begin. Two are never equal."""

    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    groups: dict[str, None] = field(default_factory=dict)
    wanted: dict[TopicPartition, None] = field(default_factory=dict)
    """Partitions that wait for AddPartitionsToTxn (TV1)."""
    is_adding: bool = False
    """A task is adding the wanted partitions."""
    anchor: TopicPartition | None = None
    """A partition that certainly is in it: a batch was stored there."""
    is_started: bool = False
    """The coordinator may have the transaction, so it must be ended there."""
    has_gap: bool = False
    """A batch got its sequence and was then lost, so a partition's sequences have a gap."""
    prepared: PreparedTransaction | None = None
    was_ended: bool = False
    """The coordinator has aborted it already, because of its time-out."""
    cause: OdradekError | None = None
    """Why it must be aborted, or why the producer failed in it."""
    decided: trio.Event | None = None
    """Set when the producer knows why a broker refused its epoch. None if no broker has."""
    ending: trio.Event | None = None
    """Set when the latest attempt to end it is over."""
    _storing: int = 0
    """Calls of `send_offsets` that are under way."""
    _stored: trio.Event = field(default_factory=trio.Event)

    @property
    def is_storing(self) -> bool:
        return self._storing > 0

    @contextmanager
    def storing(self) -> Iterator[None]:
        """Count a call of `send_offsets`, which the end of the transaction waits for."""
        if not self._storing:
            self._stored = trio.Event()
        self._storing += 1
        try:
            yield
        finally:
            self._storing -= 1
            if not self._storing:
                self._stored.set()

    async def wait_stored(self) -> None:
        """Wait until no call of `send_offsets` is under way."""
        if self._storing:
            await self._stored.wait()

    async def wait_decided(self) -> None:
        """Wait until the producer knows why a broker refused its epoch, if a broker has."""
        if self.decided is not None:
            await self.decided.wait()

    @property
    def is_ending(self) -> bool:
        """True while an attempt to end it is under way."""
        return self.ending is not None and not self.ending.is_set()

    async def wait_ended(self) -> None:
        """Wait until no attempt to end it is under way."""
        while self.is_ending:
            assert self.ending is not None
            await self.ending.wait()  # an abort may follow a commit that has failed
