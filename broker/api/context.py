"""What a handler is given: who asks, in which version, and the parts of the broker it may ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.broker.txn.transaction import ClientIdentity, ProducerIdAndEpoch

if TYPE_CHECKING:
    from odradek.broker.cluster.controller import Controller
    from odradek.broker.config import BrokerConfig
    from odradek.broker.env import Clock
    from odradek.broker.group.coordinator import GroupCoordinator
    from odradek.broker.partitions import Partitions
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
    groups: GroupCoordinator
    reached: Callable[[str], None]
    """Called with the name of a fault point (`Env.reached`)."""


def _at_once(_max_bytes: int) -> AbstractAsyncContextManager[None]:
    """Nobody counts what an answer takes."""
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """One request's circumstances. `client_id` is "" where the client gave none."""

    core: Core
    api_version: int
    client_id: str
    host: str
    seat: Seat | None = None
    """The place of the connection, where transactional producers are watched."""
    is_version_known: bool = True
    """False for an ApiVersions request of an unknown version; `api_version` is then 0."""
    reading: Callable[[int], AbstractAsyncContextManager[None]] = _at_once
    """Entered by who reads up to so many bytes for an answer: it waits until there is room."""

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
