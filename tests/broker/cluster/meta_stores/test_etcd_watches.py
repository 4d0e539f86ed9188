"""Watches of the etcd store: how it puts events together, and what ends a watch."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import trio

from odradek.broker.cluster.etcd_gateway import EtcdGateway
from odradek.broker.cluster.store_etcd import EtcdStore
from odradek.broker.environment.env import (
    Changes,
    Compacted,
    StoreUnreachable,
    Versioned,
)
from tests.broker.cluster.meta_stores.scripted_etcd import (
    HEADER,
    LOST_ANSWER,
    REFUSED_CONNECTION,
    ScriptedEtcd,
    b64,
    ok,
)


def streamed(*messages: dict[str, Any]) -> httpx2.Response:
    async def content() -> AsyncIterator[bytes]:
        for message in messages:
            yield json.dumps(message).encode() + b"\n"

    return httpx2.Response(200, content=content())


def event(name: str, revision: int, value: str | None) -> dict[str, Any]:
    kv = {"key": b64(f"/o{name}"), "mod_revision": str(revision)}
    if value is None:
        return {"type": "DELETE", "kv": kv}
    return {"kv": {**kv, "create_revision": "2", "value": b64(value)}}


def message(revision: int | None = None, **fields: Any) -> dict[str, Any]:
    header = {} if revision is None else {"revision": str(revision)}
    return {"result": {"header": header, **fields}}


async def watched(etcd: ScriptedEtcd, from_revision: int) -> list[Changes]:
    """Return what a watch gives until it ends, which is an error."""
    got: list[Changes] = []
    async with etcd.store.watch("/", from_revision) as watch:
        try:
            async for changes in watch:
                got.append(changes)
        except StoreUnreachable:
            return got
    raise AssertionError("a watch ends with an error only")


async def test_events_are_put_together_by_revision() -> None:
    etcd = ScriptedEtcd()
    events = [event("/a", 3, "1"), event("/b", 3, None), event("/a", 4, "2")]
    etcd.answers(streamed(message(4, created=True), message(4, events=events)))
    made = Versioned(value=b"1", create_revision=2, mod_revision=3)
    changed = Versioned(value=b"2", create_revision=2, mod_revision=4)
    assert await watched(etcd, 3) == [
        Changes(revision=3, values={"/a": made, "/b": None}),
        Changes(revision=4, values={"/a": changed}),
    ]
    wanted = etcd.bodies[0]["create_request"]
    assert (wanted["key"], wanted["range_end"]) == (b64("/o/"), b64("/o0"))
    assert wanted["start_revision"] == "3"


async def test_progress_is_passed_on() -> None:
    etcd = ScriptedEtcd()
    etcd.answers(streamed(message(7, created=True), message(9), message(12)))
    assert await watched(etcd, 8) == [
        Changes(revision=revision, values={}) for revision in (7, 9, 12)
    ]


async def test_a_member_that_lags_does_not_set_a_watch_back() -> None:
    etcd = ScriptedEtcd()
    etcd.answers(streamed(message(3, created=True)))
    assert await watched(etcd, 8) == [Changes(revision=7, values={})]


async def test_a_key_that_only_marks_progress_does_not_appear() -> None:
    etcd = ScriptedEtcd()
    events = [event("/.mark", 8, ""), event("/.mark", 9, ""), event("/a", 9, "1")]
    etcd.answers(streamed(message(9, created=True), message(9, events=events)))
    made = Versioned(value=b"1", create_revision=2, mod_revision=9)
    assert await watched(etcd, 8) == [
        Changes(revision=8, values={}),
        Changes(revision=9, values={"/a": made}),
    ]
    pair = {"key": b64("/o/.mark"), "create_revision": "3", "mod_revision": "4"}
    etcd.answers(ok({"header": HEADER, "kvs": [pair]}))
    assert await etcd.store.range("/") == ({}, 7)


async def test_a_lease_does_not_wait_for_the_mark_that_watches_need() -> None:
    """The lease counted as not kept alive when the write of the mark found no answer."""
    etcd = ScriptedEtcd()
    etcd.answers(ok({"result": {"header": HEADER, "ID": "5", "TTL": "3"}}))
    assert await etcd.store.keep_lease(5) == 7
    assert [path for _, path in etcd.asked] == ["/v3/lease/keepalive"]
    etcd.answers(LOST_ANSWER)
    await etcd.store.show_progress()
    assert [path for _, path in etcd.asked][1:] == ["/v3/kv/txn"]


async def test_what_is_compacted_is_told_from_a_watch_that_has_ended() -> None:
    etcd = ScriptedEtcd()
    compacted = message(canceled=True, compact_revision="5")
    etcd.answers(streamed(message(9, created=True), compacted))
    async with etcd.store.watch("/", 3) as watch:
        with pytest.raises(Compacted, match="before 5"):
            await anext(watch)


@pytest.mark.parametrize(
    "ended",
    [
        message(9, created=True, canceled=True, cancel_reason="etcdserver: invalid auth token"),
        {"code": 16, "message": "etcdserver: invalid auth token"},
        {"error": {"grpc_code": 16, "message": "etcdserver: invalid auth token"}},
    ],
)
async def test_a_watch_that_is_refused_asks_for_a_new_token(ended: dict[str, Any]) -> None:
    etcd = ScriptedEtcd(user="ada")
    token = ok({"header": HEADER, "token": "token"})
    etcd.answers(token, streamed(ended), token, streamed(message(9, created=True)))
    async with etcd.store.watch("/", 10) as watch:
        with pytest.raises(StoreUnreachable, match="invalid auth token"):
            await anext(watch)
    assert await watched(etcd, 10) == [Changes(revision=9, values={})]
    assert [path for _, path in etcd.asked] == ["/v3/auth/authenticate", "/v3/watch"] * 2


async def test_a_new_watch_uses_the_next_endpoint_that_can_be_connected_to() -> None:
    etcd = ScriptedEtcd(endpoints=3)
    etcd.answer = lambda host, path: (
        REFUSED_CONNECTION if host == "etcd2" else streamed(message(9, created=True))
    )
    for _ in range(3):
        assert await watched(etcd, 10) == [Changes(revision=9, values={})]
    assert etcd.hosts == ["etcd1", "etcd2", "etcd3", "etcd1"]
    etcd.answer = lambda host, path: REFUSED_CONNECTION
    with pytest.raises(StoreUnreachable, match="etcd cannot be watched"):
        await watched(etcd, 10)


async def test_a_watch_that_is_not_opened_in_time_is_an_error() -> None:
    etcd = ScriptedEtcd()

    async def never(request: httpx2.Request) -> httpx2.Response:
        await trio.sleep_forever()

    gateway = EtcdGateway(etcd.config, lambda: httpx2.MockTransport(never), 2.0, etcd.rng)
    store = EtcdStore(gateway, "/o", etcd.rng)
    began = trio.current_time()
    with pytest.raises(StoreUnreachable, match="no answer in time"):
        async with store.watch("/", 1):
            pass
    assert trio.current_time() == began + 2.0
