"""Leases and calls while etcd, its links or this machine are slow: who waits, and for what."""

from collections.abc import Awaitable, Callable
from random import Random

import httpx2
import pytest
import trio

from odradek.broker.cluster.etcd_gateway import EtcdGateway
from odradek.broker.cluster.store_etcd import EtcdStore
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.environment.env import StoreUnreachable
from tests.broker.cluster.meta_stores.scripted_etcd import HEADER, ok

LEASE = 5
KEPT = {"result": {"header": HEADER, "ID": str(LEASE), "TTL": "3"}}
TIMEOUT_S = 1.0
Serve = Callable[[int, httpx2.Request], Awaitable[httpx2.Response]]


def store_over(serve: Serve, *, endpoints: int = 1) -> EtcdStore:
    """Return a store whose requests go to `serve`, with the number of their connections."""
    made = 0

    def make() -> httpx2.MockTransport:
        nonlocal made
        made += 1
        number = made

        async def answer(request: httpx2.Request) -> httpx2.Response:
            await trio.lowlevel.checkpoint()
            return await serve(number, request)

        return httpx2.MockTransport(answer)

    hosts = ",".join(f"http://etcd{1 + index}:2379" for index in range(endpoints))
    config = BrokerConfig(etcd_endpoints=hosts, etcd_key_prefix="/o")
    rng = Random(1)
    return EtcdStore(EtcdGateway(config, make, TIMEOUT_S, rng), "/o", rng)


async def hang() -> httpx2.Response:
    await trio.sleep_forever()
    raise AssertionError


async def test_a_lease_is_kept_alive_over_a_new_connection_if_the_open_one_is_stuck() -> None:
    """Each broker asked again over and over, and gave each answer a second."""
    asked: list[int] = []

    async def serve(connection: int, request: httpx2.Request) -> httpx2.Response:
        asked.append(connection)
        return ok(KEPT) if len(set(asked)) > 1 else await hang()

    store = store_over(serve)
    with trio.fail_after(2 * TIMEOUT_S):
        assert await store.keep_lease(LEASE) == 7
    assert len(asked) == len(set(asked)) == 2


async def test_a_late_answer_counts_although_others_were_asked_meanwhile() -> None:
    """A limit of a third of the lease made each answer come too late on a busy machine."""
    count = 0

    async def serve(connection: int, request: httpx2.Request) -> httpx2.Response:
        nonlocal count
        count += 1
        if count > 1:
            return await hang()
        await trio.sleep(2.5 * TIMEOUT_S)
        return ok(KEPT)

    began = trio.current_time()
    assert await store_over(serve).keep_lease(LEASE) == 7
    assert trio.current_time() - began == pytest.approx(2.5 * TIMEOUT_S, abs=0.1)
    assert count == 3


async def test_a_lease_is_kept_at_the_next_endpoint_if_one_is_silent() -> None:
    async def serve(connection: int, request: httpx2.Request) -> httpx2.Response:
        return await hang() if request.url.host == "etcd1" else ok(KEPT)

    store = store_over(serve, endpoints=3)
    with trio.fail_after(2 * TIMEOUT_S):
        await store.keep_lease(LEASE)
    began = trio.current_time()
    await store.keep_lease(LEASE)
    assert trio.current_time() == began, "the endpoint that answered is asked first"


@pytest.mark.slow
async def test_a_lease_does_not_wait_behind_other_calls() -> None:
    async def serve(connection: int, request: httpx2.Request) -> httpx2.Response:
        return ok(KEPT) if request.url.path == "/v3/lease/keepalive" else await hang()

    store = store_over(serve)

    async def call() -> None:
        while True:
            with pytest.raises(StoreUnreachable):
                await store.range("/")

    async with trio.open_nursery() as nursery:
        for _ in range(200):
            nursery.start_soon(call)
        for _ in range(60):
            await trio.sleep(1)
            began = trio.current_time()
            await store.keep_lease(LEASE)
            assert trio.current_time() == began
        nursery.cancel_scope.cancel()


async def test_a_call_without_an_answer_gets_new_connections_for_those_that_follow() -> None:
    """A link that was cut leaves connections of which nobody says that they are dead."""
    asked: list[int] = []
    is_dead = False

    async def serve(connection: int, request: httpx2.Request) -> httpx2.Response:
        asked.append(connection)
        return await hang() if is_dead and connection in before else ok({"header": HEADER})

    store = store_over(serve)
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(store.range, "/")
    before, is_dead = set(asked), True
    with pytest.raises(StoreUnreachable, match="no answer in time"):
        await store.range("/")
    began = trio.current_time()
    await store.range("/")
    assert trio.current_time() == began
