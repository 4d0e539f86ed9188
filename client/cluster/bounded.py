"""Calls that consist of several requests, with one time limit for all of them.

Every public call of a client ends. This option is its bound:

    max_block_ms          every call of `Admin`; each call of `Consumer` without `timeout_ms`; each
                          call of `Producer` that is not below. An iteration over a consumer ends
                          when no broker has answered for this time
    delivery_timeout_ms   `flush`, and awaiting a delivery
    both                  `commit`, `prepare` and `complete` of a transaction: first the records,
                          then the coordinator (twice, if a broker has refused the epoch). `begin`
                          waits for the end of the previous transaction
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
    """Make a method raise `TimedOut` after `max_block_ms`, with `doing` in the message."""

    def decorate(
        method: Callable[Concatenate[Client, P], Awaitable[T]],
    ) -> Callable[Concatenate[Client, P], Awaitable[T]]:
        @wraps(method)
        async def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
            # invariant client 6: Every call ends within a stated time.
            # tests/client/test_every_call_ends.py
            return await self._cluster.within(doing, partial(method, self, *args, **kwargs))

        return call

    return decorate
