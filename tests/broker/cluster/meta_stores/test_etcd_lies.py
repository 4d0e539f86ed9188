"""Answers from etcd's address that are not etcd's: the store is away then, the broker is not."""

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2
import pytest
import trio

from odradek.broker.cluster.etcd_answers import MESSAGE_MAX_BYTES
from odradek.broker.cluster.etcd_gateway import EtcdRefused
from odradek.broker.cluster.store_etcd import EtcdStore
from odradek.broker.environment.env import LeaseExpired, OutcomeUnknown, StoreUnreachable
from tests.broker.cluster.meta_stores.scripted_etcd import HEADER, WRITTEN, ScriptedEtcd, b64, ok

pytestmark = pytest.mark.slow

LEASE = 2**63 - 1
KEPT = {"result": {"header": HEADER, "ID": str(LEASE), "TTL": "3"}}
PAIR = {
    "key": b64("/o/a"),
    "value": b64("1"),
    "create_revision": "2",
    "mod_revision": "3",
    "version": "1",
    "lease": "0",
}
LISTED = {"header": HEADER, "kvs": [PAIR], "more": False}
EVENT = {"type": "PUT", "kv": PAIR}
WATCHED = {"result": {"header": HEADER, "created": True, "events": [EVENT]}}
GRANTED = {"header": HEADER, "ID": str(LEASE), "TTL": "3"}

Call = Callable[[EtcdStore], Awaitable[object]]


async def first_of_watch(store: EtcdStore) -> object:
    async with store.watch("/", 1) as watch:
        return await anext(watch)


CALLS: dict[str, tuple[Call, dict[str, Any]]] = {
    "range": (lambda store: store.range("/"), LISTED),
    "txn": (lambda store: store.txn([], {"/a": b"1"}), WRITTEN),
    "grant": (lambda store: store.grant_lease(3), GRANTED),
    "keep": (lambda store: store.keep_lease(LEASE), KEPT),
    "revoke": (lambda store: store.revoke_lease(LEASE), {"header": HEADER}),
    "watch": (first_of_watch, WATCHED),
}
AWAY = (StoreUnreachable, OutcomeUnknown)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 7, -1, 1.5, 2**63, 2**400, float("nan")),
    *("", "x", "-1", "9" * 19, "9" * 5000, "1.5", " 7", "٣", "!!!", "AAAAA", b64("/other/key")),
    *([], [None], [[[]]], {}, {"revision": {}}, {"": ""}),
)


def lies_about(value: Any) -> list[Any]:
    """Return an answer with each of its parts replaced by each of `VALUES`, or left out."""
    lies: list[Any] = list(VALUES)
    if isinstance(value, dict):
        for name, part in value.items():
            lies.append({key: other for key, other in value.items() if key != name})
            lies += [{**value, name: lie} for lie in lies_about(part)]
    elif isinstance(value, list):
        for index, part in enumerate(value):
            lies += [[*value[:index], lie, *value[index + 1 :]] for lie in lies_about(part)]
    return lies


@pytest.mark.parametrize("name", list(CALLS))
async def test_an_answer_of_any_shape_is_etcds_or_the_store_is_away(name: str) -> None:
    """A wrong type anywhere in an answer ended the broker with a traceback."""
    call, truth = CALLS[name]
    etcd = ScriptedEtcd()
    etcd.answers(ok(truth))
    await call(etcd.store)
    refused = 0
    for lie in lies_about(truth):
        etcd = ScriptedEtcd()
        etcd.answers(httpx2.Response(200, content=json.dumps(lie).encode()))
        try:
            await call(etcd.store)
        except (*AWAY, EtcdRefused, LeaseExpired):
            refused += 1
    assert refused > len(VALUES), "nothing was refused"


@pytest.mark.parametrize("name", list(CALLS))
@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{}", b"[]", b"null", b"5", b'"x"', b"NaN", b"{", b"\xff\xfe" * 50, b"<html>"),
        *(b"[" * 100_000, b'{"a":' * 100_000, b'{"header":' + b"9" * 10_000 + b"}"),
        *(b'{"code": 1}', b'{"code": [], "message": "x"}', b'{"error": [1]}', b'{"error": "x"}'),
    ],
    ids=lambda body: repr(body[:12]),
)
@pytest.mark.parametrize("status", [200, 500])
async def test_a_body_that_is_not_etcds_means_that_the_store_is_away(
    name: str, body: bytes, status: int
) -> None:
    etcd = ScriptedEtcd()
    etcd.answers(httpx2.Response(status, content=body))
    with pytest.raises(AWAY):
        await CALLS[name][0](etcd.store)


class Endless(httpx2.AsyncByteStream):
    """A body that ends when its connection is closed."""

    def __init__(self) -> None:
        self.read_bytes = 0
        self._is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while not self._is_closed:
            await trio.lowlevel.checkpoint()
            assert self.read_bytes < 2 * MESSAGE_MAX_BYTES, "it is read for ever"
            self.read_bytes += 2**16
            yield b"[" * 2**16

    async def aclose(self) -> None:
        self._is_closed = True


@pytest.mark.parametrize("name", ["range", "txn", "keep", "watch"])
async def test_an_answer_without_an_end_is_not_kept_in_memory(name: str) -> None:
    """600 MB in one answer, or in one line of a watch, took 1.5 GB."""
    body = Endless()
    etcd = ScriptedEtcd()
    etcd.answers(httpx2.Response(200, stream=body), httpx2.Response(200, json=[]))
    with pytest.raises(AWAY, match="longer than 8388608 bytes"):
        await CALLS[name][0](etcd.store)
    assert body.read_bytes <= MESSAGE_MAX_BYTES + 2**16


async def test_an_answer_that_comes_one_byte_at_a_time_is_not_awaited_for_ever() -> None:
    async def content() -> AsyncIterator[bytes]:
        while True:
            await trio.sleep(0.1)
            yield b" "

    etcd = ScriptedEtcd()
    etcd.answers(httpx2.Response(200, content=content()))
    began = trio.current_time()
    with pytest.raises(StoreUnreachable, match="no answer in time"):
        await etcd.store.range("/")
    assert trio.current_time() - began < 6


async def test_answers_of_another_etcd_are_refused_and_a_line_says_what_to_do() -> None:
    etcd = ScriptedEtcd()
    ours = {"header": {**HEADER, "cluster_id": "17"}}
    etcd.answers(ok(ours), ok({"header": {**HEADER, "cluster_id": "18"}}), ok(ours))
    await etcd.store.range("/")
    with pytest.raises(StoreUnreachable, match=r"cluster 12, .* 11: restart this broker"):
        await etcd.store.range("/")
    assert await etcd.store.range("/") == ({}, 7)


async def test_a_range_of_many_keys_is_read_in_pages_of_one_revision() -> None:
    etcd = ScriptedEtcd()
    second = {**PAIR, "key": b64("/o/b")}
    etcd.answers(ok({**LISTED, "more": True}), ok({"header": {"revision": "9"}, "kvs": [second]}))
    found, revision = await etcd.store.range("/")
    assert (list(found), revision) == (["/a", "/b"], 7)
    assert [(body["key"], body["revision"]) for body in etcd.bodies] == [
        (b64("/o/"), "0"),
        (b64("/o/a\0"), "7"),
    ]


# pace


async def test_calls_slow_down_while_etcd_does_not_answer_and_one_line_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every task that called etcd tried again five times a second, with a line each time."""
    etcd = ScriptedEtcd()
    etcd.answers(httpx2.Response(200, json=[]))
    began = trio.current_time()

    async def call_again_and_again() -> None:
        while trio.current_time() < began + 60:
            with pytest.raises(StoreUnreachable):
                await etcd.store.range("/")
            await trio.sleep(0.2)

    with caplog.at_level(logging.INFO):
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(call_again_and_again)
        assert len(etcd.asked) < 100
        etcd.answers(ok(LISTED))
        await etcd.store.range("/")
    asked = len(etcd.asked)
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(etcd.store.range, "/")
    assert len(etcd.asked) == asked + 10
    first, last = caplog.messages
    assert first.startswith("etcd does not answer calls, which are sent ever more rarely: ")
    assert last.startswith("etcd answers calls again, after 6")


async def test_a_watch_that_ends_at_once_is_opened_ever_more_rarely() -> None:
    etcd = ScriptedEtcd()
    etcd.answers(ok({"result": 5}))
    began = trio.current_time()
    while trio.current_time() < began + 60:
        with pytest.raises(StoreUnreachable):
            await first_of_watch(etcd.store)
    assert len(etcd.asked) < 60
