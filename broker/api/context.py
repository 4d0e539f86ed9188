"""What a handler is given: who asks, in which version, and the parts of the broker it may ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import trio

from odradek.broker.txn.transaction import ClientIdentity, ProducerIdAndEpoch

if TYPE_CHECKING:
    from odradek.broker.cluster.controller import Controller
    from odradek.broker.config import BrokerConfig
    from odradek.broker.env import Clock
    from odradek.broker.group.coordinator import GroupCoordinator
    from odradek.broker.partitions import Partitions
    from odradek.broker.txn.admission import Admission
    from odradek.broker.txn.coordinator import TransactionCoordinator
    from odradek.broker.txn.presence import Seat


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The parts of one broker that handlers talk to."""

    config: BrokerConfig
    clock: Clock
    cluster: Controller
    partitions: Partitions
    transactions: TransactionCoordinator
    admission: Admission
    groups: GroupCoordinator
    reached: Callable[[str], None]
    """Called with the name of a fault point (`Env.reached`)."""


ANSWER_ITEM_BYTES: Final = 200
"""What an item of an answer takes, as an object and on the wire."""

SMALL_ANSWER_BYTES: Final = 64 * 1024
"""An answer of this size is built without asking for room: it counts when it is built."""


def text_bytes(text: str | None) -> int:
    """Return how many bytes a text takes in an answer, at most, without encoding it."""
    if not text:
        return 0
    return len(text) if text.isascii() else 3 * len(text)


def _at_once(max_bytes: int, _least_bytes: int = 0) -> AbstractAsyncContextManager[int]:
    """Grant everything: there is no account."""
    return nullcontext(max_bytes)


async def _no_account(_size_bytes: int) -> None:
    """Count nothing: there is no account."""


def _not_counted(_size_bytes: int) -> None:
    """Count nothing: there is no account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """One request's circumstances. `client_id` is "" where the client gave none."""

    core: Core
    api_version: int
    client_id: str
    host: str
    is_in_process: bool = False
    """True for a request that this broker sends to itself (`peers.py`)."""
    seat: Seat | None = None
    """The place of the connection, where transactional producers are watched."""
    is_version_known: bool = True
    """False for an ApiVersions request of an unknown version; `api_version` is then 0."""
    reading: Callable[[int, int], AbstractAsyncContextManager[int]] = _at_once
    """Entered with the most and the least bytes that an answer may have: it waits until there is
    room for the least, and gives how many it may have."""
    reserve: Callable[[int], Awaitable[None]] = _no_account
    """Waits until there is room for an answer of about so many bytes. See `expect`."""
    keep: Callable[[int], None] = _not_counted
    """Counts so many bytes of the answer from now on, without waiting: they are there already."""
    polling: Callable[[float], trio.CancelScope] = trio.move_on_at
    """Entered by what only waits for news until a deadline, a time of trio's clock. The scope is
    cancelled before, if the client sends no more or the broker stops: the answer is then what there
    is."""

    async def expect(self, items: int, *, extra_bytes: int = 0) -> None:
        """Wait for room for an answer of so many items, before they are made.

        `extra_bytes`: their texts and blobs, where those are not the request's own. Raises
        ProtocolError, which closes the connection, for more than `socket.response.max.bytes`: the
        protocol has no code for an answer that is too large.
        """
        size_bytes = items * ANSWER_ITEM_BYTES + extra_bytes
        if size_bytes > SMALL_ANSWER_BYTES:
            await self.reserve(size_bytes)

    @property
    def client(self) -> ClientIdentity:
        return ClientIdentity(client_id=self.client_id, host=self.host)

    def saw(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, begins: bool = False
    ) -> None:
        """A transactional request was served on this connection (`Seat.saw`)."""
        if self.seat is not None:
            self.seat.saw(transactional_id, producer, self.client, begins=begins)


@dataclass(frozen=True, slots=True)
class Deferred:
    """An answer that waits for something, while the connection takes its next request.

    What orders requests has happened when a handler returns this; `finish` only waits (for a
    flush, say) and makes the answer. Answers go out in the order of their requests.
    """

    finish: Callable[[], Awaitable[Any]]


Handler = Callable[[RequestContext, Any], Awaitable[Any]]
"""Returns the response, a `Deferred` one, or None where the protocol sends none (acks=0).

A `KafkaError` becomes a code in the response inside the handler. A `ProtocolError` closes the
connection with one log line.
"""
