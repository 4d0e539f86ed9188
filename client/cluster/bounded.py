"""Calls that are made of several requests, and have one time for all of them.

Every public call of a client ends. Which option is its bound:

    max_block_ms          every call of `Admin`; of `Consumer`, where it has no `timeout_ms`; of
                          `Producer`, where none of the following holds. An iteration over a
                          consumer ends when no broker has answered for so long
    delivery_timeout_ms   `flush`, and awaiting a delivery
    both                  `commit`, `prepare` and `complete` of a transaction: first the records,
                          then the coordinator (twice, if the broker has refused the epoch). `begin`
                          waits for the end of the transaction before
    timeout_ms            calls that take it
    seconds               leaving a block by an exception (`ABORT_GRACE_S`)
"""

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from odradek.client.cluster.cluster import Cluster

P = ParamSpec("P")
T = TypeVar("T")


class HasCluster(Protocol):
    _cluster: Cluster


Client = TypeVar("Client", bound=HasCluster)


def bounded(
    doing: str,
) -> Callable[
    [Callable[Concatenate[Client, P], Awaitable[T]]],
    Callable[Concatenate[Client, P], Awaitable[T]],
]:
    """Let a method raise `TimedOut` after `max_block_ms`, with `doing` in its message."""

    def decorate(
        method: Callable[Concatenate[Client, P], Awaitable[T]],
    ) -> Callable[Concatenate[Client, P], Awaitable[T]]:
        @wraps(method)
        async def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return await self._cluster.within(doing, partial(method, self, *args, **kwargs))

        return call

    return decorate
