"""A pool of transactional producers, for a program that has several transactions at once.

A producer has one transaction at a time. A web service whose requests each need one takes them from
a pool:

    async with TransactionPool("127.0.0.1:9092", prefix="orders-web-1", size=8) as pool:
        async with pool.transaction(wait_ms=2_000) as transaction:
            await transaction.send("orders", b"...")

The prefix belongs to one process at a time, and stays the same after a restart, as a transactional
id does.
"""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Generic, Self, Unpack

from odradek.client.cluster.nursery import ClientNursery, ends_where_it_waits
from odradek.client.cluster.served import Served
from odradek.client.cluster.tasks import OPENED_ONCE
from odradek.client.config import PoolOptions, pool_config
from odradek.client.errors import Closed, Refused
from odradek.client.producing.last_producer import LastProducer
from odradek.client.producing.pool_members import Loan, Members
from odradek.client.producing.producer import Producer
from odradek.client.producing.transaction import Transaction
from odradek.client.serialization import Serializer
from odradek.client.types import Key, Value

USED_TWICE: Final = "a transaction is used once: ask pool.transaction() for another one"


class _Producers(Generic[Key, Value]):
    """The producers of a pool, each in a task of its nursery."""

    def __init__(self, make: Callable[[str], Producer[Key, Value]]) -> None:
        self._make = make
        self.nursery: ClientNursery | None = None

    async def open(self, transactional_id: str, last: LastProducer | None) -> Producer[Key, Value]:
        producer = self._make(transactional_id)
        if last is not None:
            producer._go_on_after(last)
        assert self.nursery is not None
        await self.nursery.start(producer.serve)
        return producer

    async def close(self, producer: Producer[Key, Value]) -> None:
        await producer.close()

    def inner(self, producer: Producer[Key, Value]) -> Producer:
        return producer  # type: ignore[return-value] # the types of its records do not matter


@ends_where_it_waits
class TransactionPool(Served, Generic[Key, Value]):
    """A pool of producers with the transactional ids `prefix-0`, `prefix-1` and so on.

        async with TransactionPool("127.0.0.1:9092", prefix="orders-web-1", size=8) as pool:
            async with pool.transaction(wait_ms=2_000) as transaction:
                await transaction.send("orders", b"...")

    Entering takes all ids over: what a crashed process left open is aborted at once. A producer
    whose transaction the broker has aborted is initialised again. If another process takes one of
    the ids over, the pool ends: every call then raises `Fenced`, and the ids are not taken back.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        prefix: str,
        size: int,
        key_serializer: Serializer[Key] | None = None,
        value_serializer: Serializer[Value] | None = None,
        **options: Unpack[PoolOptions],
    ) -> None:
        """Make a pool of `size` producers for the brokers at `bootstrap`; entering it connects.

        `prefix` begins the transactional ids. It belongs to one process, and stays the same when
        that is started again. The other options are those of `Producer`, for each of them, without
        `transactional_id`, `two_phase_commit` and `keep_prepared`. Raises ValueError for a wrong
        option.
        """
        config = pool_config(type(self).__name__, prefix, size, options)

        def make(transactional_id: str) -> Producer[Key, Value]:
            return Producer(
                bootstrap,
                key_serializer=key_serializer,
                value_serializer=value_serializer,
                transactional_id=transactional_id,
                **options,
            )

        make(f"{prefix}-0")  # raises here for a wrong address, not on entering
        self._producers = _Producers(make)
        self._members = Members(self._producers, prefix, size, config.max_block_ms)
        self._is_entered = self._is_left = False

    def __repr__(self) -> str:
        return repr(self._members)

    @property
    def _is_open(self) -> bool:
        return self._is_entered and not self._is_left

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise Refused(OPENED_ONCE)
        self._is_entered = True
        self._nursery = self._producers.nursery = await ClientNursery().__aenter__()
        try:
            await self._members.__aenter__()
        except BaseException:
            self._is_left = True
            await self._nursery.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_left = True
        try:
            await self._members.__aexit__(exc_type, exc, traceback)
        finally:
            await self._nursery.__aexit__(None, None, None)

    def transaction(self, *, wait_ms: float | None = None) -> "PooledTransaction[Key, Value]":
        """Return a transaction of a producer that is free, to use with `async with`.

        Entering it waits for its turn for `wait_ms` (None: `max_block_ms`), and raises `Busy` if no
        producer was free. Raises `Fenced` once another process has taken one of the ids over.
        """
        return PooledTransaction(self, wait_ms)


@ends_where_it_waits
class PooledTransaction(Generic[Key, Value]):
    """A transaction of a pool: it commits on a clean exit and aborts on an exception.

    Entering it returns the `Transaction` of one of the producers.
    """

    def __init__(self, pool: TransactionPool[Key, Value], wait_ms: float | None) -> None:
        self._pool = pool
        self._wait_ms = wait_ms
        self._loan = Loan[Producer[Key, Value]]()
        self._transaction: Transaction[Key, Value] | None = None

    async def __aenter__(self) -> Transaction[Key, Value]:
        if not self._pool._is_entered:
            raise Closed("the pool is not open: use it in its `async with` block, or serve it")
        if self._transaction is not None:
            raise Refused(USED_TWICE)
        self._loan = Loan()  # it may be entered again after `Busy`
        await self._pool._members.take(self._loan, self._wait_ms)
        try:
            self._transaction = self._loan.producer.transaction()
            return await self._transaction.__aenter__()
        except BaseException:
            self._pool._members.end(self._loan)
            raise

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._transaction is not None
        try:
            await self._transaction.__aexit__(exc_type, exc, traceback)
        finally:
            self._pool._members.end(self._loan)
