"""The producers of a transaction pool, and the waiting tasks that get them in turn.

The producers of all three clients are managed here, in trio: `PoolOf` says how those of one client
are opened and closed. A member keeps its transactional id and changes its producer: one that has
failed is replaced when its turn comes. The new producer goes on from the identity of the failed
one, and a coordinator refuses that if another instance has taken the id over. Then the pool ends.
It does not take the id back: the other instance would do the same, and neither would commit.
"""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Generic, Protocol, Self, TypeVar

from odradek.client.cluster.nursery import ClientNursery
from odradek.client.errors import Busy, Closed, Fenced, OdradekError
from odradek.client.journal import LOGGER, loggable
from odradek.client.producing.last_producer import LastProducer
from odradek.client.producing.line import Line
from odradek.client.producing.open_transaction import OpenTransaction
from odradek.client.producing.producer import Producer

P = TypeVar("P")


class PoolOf(Protocol[P]):
    """The producers of one client, as the pool opens and closes them in trio."""

    async def open(self, transactional_id: str, last: LastProducer | None) -> P:
        """Open a producer. It takes the id over, or goes on from `last`, which has failed."""

    async def close(self, producer: P) -> None:
        """Close a producer. What it has open is aborted."""

    def inner(self, producer: P) -> Producer:
        """Return the trio producer."""


class PoolMember(Generic[P]):
    """A transactional id of the pool, and its producer at the moment."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id: Final = transactional_id
        self.producer: P | None = None
        self.last: LastProducer | None = None
        """The producer that has failed, until there is another one."""


class Loan(Generic[P]):
    """The member that one block has, from `take` until `end`."""

    def __init__(self) -> None:
        self.member: PoolMember[P] | None = None
        self.taken: P | None = None
        """The producer of the member, also after the pool was closed."""
        self.is_over = False

    @property
    def producer(self) -> P:
        assert self.taken is not None
        return self.taken


class Members(Generic[P]):
    """The members of one pool. It is an async context manager, and is entered once."""

    def __init__(self, kind: PoolOf[P], prefix: str, size: int, max_block_ms: int) -> None:
        self._kind = kind
        self._prefix = prefix
        self._max_block_ms = max_block_ms
        self._all: Final = [PoolMember[P](f"{prefix}-{number}") for number in range(size)]
        self._line = Line[PoolMember[P]]()
        self._ended: OdradekError | None = None
        """Why no transaction begins any more."""

    def __repr__(self) -> str:
        return f"<TransactionPool {self._prefix!r} of {len(self._all)} producers>"

    async def __aenter__(self) -> Self:
        """Take over all transactional ids at once, which ends what an earlier process left open."""
        errors: list[OdradekError] = []

        async def open_one(member: PoolMember[P]) -> None:
            try:
                await self._renew(member)
            except OdradekError as error:
                errors.append(error)

        try:
            await self._for_each(open_one)
            if errors:
                raise errors[0]
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        for member in self._all:
            self._line.give(member)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended = self._ended or Closed("the pool is closed: make a new one")
        self._line.wake_all()
        await self._for_each(self._close)

    async def _for_each(self, call: Callable[[PoolMember[P]], Awaitable[None]]) -> None:
        async with ClientNursery() as nursery:
            for member in self._all:
                nursery.start_soon(call, member)

    async def _close(self, member: PoolMember[P]) -> None:
        producer, member.producer = member.producer, None
        if producer is not None:
            await self._kind.close(producer)

    async def _renew(self, member: PoolMember[P]) -> None:
        """Open the producer of a member that has none, or whose producer has failed."""
        if member.producer is not None:
            inner = self._kind.inner(member.producer)
            if inner._failure is None:
                return
            member.last = inner._as_last()
            await self._close(member)
        self._check_usable()  # a pool that was closed meanwhile opens nothing any more
        member.producer = await self._kind.open(member.transactional_id, member.last)
        member.last = None
        if self._ended is not None:  # meanwhile, when this producer was not there to be closed
            await self._close(member)
            raise self._ended.copy()

    async def take(self, loan: Loan[P], wait_ms: float | None) -> None:
        """Take a member for a block, as soon as one is free. `end` gives it back.

        Raises `Busy` after `wait_ms` (None: `max_block_ms`), `Fenced` if another instance has one
        of the ids, `Closed`, and the errors of opening a producer.
        """
        self._check_usable()
        limit_ms = self._max_block_ms if wait_ms is None else wait_ms
        member = await self._line.take(limit_ms)
        self._check_usable()
        if member is None:
            raise Busy(
                f"every producer of the pool {self._prefix!r} was in a transaction for "
                f"{limit_ms:g} ms; try again later, or give the pool a larger size than "
                f"{len(self._all)}"
            )
        loan.member = member
        try:
            await self._renew(member)
        except Fenced as fenced:
            self._give_back(loan)
            raise self._end_all(fenced) from None
        except BaseException:
            self._give_back(loan)
            raise
        loan.taken = member.producer
        if loan.is_over:  # the program was cancelled meanwhile, and does not wait for it
            self._give_back(loan)

    def end(self, loan: Loan[P]) -> None:
        """Return the member of a block to the pool; at the end of `take`, if that is under way."""
        loan.is_over = True
        if loan.taken is not None:
            self._give_back(loan)

    def _give_back(self, loan: Loan[P]) -> None:
        member, loan.member = loan.member, None
        if member is None:
            return
        inner = None if member.producer is None else self._kind.inner(member.producer)
        transaction = None if inner is None else inner._open_transaction
        if inner is None or transaction is None or not transaction.is_ending:
            self._give(member)
            return
        # The block was cancelled. The next one would wait for this end, and for longer than
        # `wait_ms`, while another member may be free.
        inner._cluster.tasks.spawn(self._give_when_ended, member, transaction)

    async def _give_when_ended(self, member: PoolMember[P], transaction: OpenTransaction) -> None:
        try:
            await transaction.wait_ended()
        finally:
            self._give(member)

    def _give(self, member: PoolMember[P]) -> None:
        """Hand a member to the next task.

        One whose producer has just failed comes first, so that the pool notices another instance.
        One that could not be initialised again comes last, and does not hold up the others.
        """
        producer = member.producer
        has_failed = producer is not None and self._kind.inner(producer)._failure is not None
        self._line.give(member, first=has_failed)

    def _check_usable(self) -> None:
        if self._ended is not None:
            raise self._ended.copy()

    def _end_all(self, fenced: Fenced) -> OdradekError:
        """End the pool because another instance has one of its ids. Return the error to raise."""
        if self._ended is None:
            self._ended = Fenced(
                f"the pool {self._prefix!r} has ended: {fenced}. The prefix of a pool belongs to "
                f"one process: give each its own",
                code=fenced.code,
            )
            LOGGER.error("%s", loggable(self._ended))
            self._line.wake_all()
        return self._ended.copy()
