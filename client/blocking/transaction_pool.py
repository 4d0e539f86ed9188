"""Pools of transactional producers without an event loop."""

import contextlib
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar, Unpack

from odradek.client.blocking.hosted import Blocking, Hosted
from odradek.client.blocking.loop import the_loop
from odradek.client.blocking.producer import Producer
from odradek.client.blocking.transaction import Transaction
from odradek.client.config import PoolOptions, parse_bootstrap, pool_config
from odradek.client.errors import Closed, Refused
from odradek.client.producing.last_producer import LastProducer
from odradek.client.producing.pool_members import Loan, Members
from odradek.client.producing.producer import Producer as AsyncProducer
from odradek.client.producing.transaction_pool import USED_TWICE
from odradek.client.producing.transaction_pool import TransactionPool as AsyncPool
from odradek.client.serialization import Serializer
from odradek.client.types import Key, Value

P = TypeVar("P")


class HostedProducers(Generic[P]):
    """The producers of a pool that other threads use. They are opened and closed in the loop."""

    def __init__(
        self, make: Callable[[str], P], blocking: Callable[[P], Producer[Any, Any]]
    ) -> None:
        """`blocking` returns the blocking producer behind one of them."""
        self._make = make
        self._blocking = blocking

    async def open(self, transactional_id: str, last: LastProducer | None) -> P:
        made = self._make(transactional_id)
        hosted = self._blocking(made)._hosted
        if last is not None:
            make_inner = hosted.make

            def make_next() -> AsyncProducer:
                inner = make_inner()
                inner._go_on_after(last)
                return inner

            hosted.make = make_next
        await hosted.begin(the_loop())
        return made

    async def close(self, producer: P) -> None:
        await self._blocking(producer)._end_in_loop()

    def inner(self, producer: P) -> AsyncProducer:
        return self._blocking(producer)._hosted.resource


class TransactionPool(Blocking[Members[Producer[Key, Value]]], Generic[Key, Value]):
    """`odradek.client.TransactionPool` with plain `with` and without `await`.

    Several threads may take transactions at the same time, each for itself.
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
            producers = HostedProducers[Producer[Key, Value]](make, lambda producer: producer)
            return Members(producers, prefix, size, config.max_block_ms)

        self._hosted = Hosted(members)

    __init__.__doc__ = AsyncPool.__init__.__doc__

    def transaction(self, *, wait_ms: float | None = None) -> "PooledTransaction[Key, Value]":
        """Return a transaction of a producer that is free, to use with `with`.

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

    def __enter__(self) -> Transaction[Key, Value]:
        if self._transaction is not None:
            raise Refused(USED_TWICE)
        self._loan = Loan()  # it may be entered again after `Busy`
        loop, members = self._pool._hosted.loop, self._pool._async
        try:
            loop.call(members.take, self._loan, self._wait_ms)
            self._transaction = self._loan.producer.transaction()
            return self._transaction.__enter__()
        except BaseException:  # Ctrl-C, too
            with contextlib.suppress(Closed):  # with its loop, everything of the pool has ended
                loop.run_soon(members.end, self._loan)
            raise

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._transaction is not None
        hosted = self._pool._hosted
        try:
            self._transaction.__exit__(exc_type, exc, traceback)
        finally:
            if hosted.opened is not None:
                with contextlib.suppress(Closed):
                    hosted.entered.run_soon(hosted.opened.end, self._loan)
