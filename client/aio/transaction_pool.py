"""Pools of transactional producers for asyncio programs."""

import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import Generic, Unpack

from odradek.client.aio.crossing import Caller
from odradek.client.aio.hosted import Aio
from odradek.client.aio.producer import Producer
from odradek.client.aio.transaction import Transaction
from odradek.client.blocking.hosted import Hosted
from odradek.client.blocking.transaction_pool import HostedProducers
from odradek.client.config import PoolOptions, parse_bootstrap, pool_config
from odradek.client.errors import Closed, Refused
from odradek.client.producing.pool_members import Loan, Members
from odradek.client.producing.transaction_pool import USED_TWICE
from odradek.client.producing.transaction_pool import TransactionPool as TrioPool
from odradek.client.serialization import Serializer
from odradek.client.types import Key, Value


class TransactionPool(Aio[Members[Producer[Key, Value]]], Generic[Key, Value]):
    """`odradek.client.TransactionPool` for asyncio programs.

        async with TransactionPool("127.0.0.1:9092", prefix="orders-web-1", size=8) as pool:
            async with pool.transaction(wait_ms=2_000) as transaction:
                await transaction.send("orders", b"...")

    Several tasks may take transactions at the same time, each for itself.
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
        config = pool_config(type(self).__name__, prefix, size, options)
        parse_bootstrap(bootstrap)

        def make(transactional_id: str) -> Producer[Key, Value]:
            return Producer(
                bootstrap,
                key_serializer=key_serializer,
                value_serializer=value_serializer,
                transactional_id=transactional_id,
                **options,
            )

        def members() -> Members[Producer[Key, Value]]:
            producers = HostedProducers(make, lambda producer: producer._behind)
            return Members(producers, prefix, size, config.max_block_ms)

        self._caller = Caller()
        self._hosted = Hosted(members)

    __init__.__doc__ = TrioPool.__init__.__doc__

    def transaction(self, *, wait_ms: float | None = None) -> "PooledTransaction[Key, Value]":
        """Return a transaction of a producer that is free, to use with `async with`.

        See `odradek.client.TransactionPool.transaction`.
        """
        return PooledTransaction(self, wait_ms)


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
        if self._transaction is not None:
            raise Refused(USED_TWICE)
        self._loan = Loan()  # it may be entered again after `Busy`
        await self._pool._opened()
        try:
            members = self._pool._hosted.resource
            await self._pool._call(members.take, self._loan, self._wait_ms)
            self._transaction = self._loan.producer.transaction()
            return await self._transaction.__aenter__()
        except BaseException:  # a cancellation, too
            self._end_loan()
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
            self._end_loan()

    def _end_loan(self) -> None:
        hosted = self._pool._hosted
        if hosted.opened is not None:
            with contextlib.suppress(Closed):  # with its loop, everything of the pool has ended
                hosted.entered.run_soon(hosted.opened.end, self._loan)
