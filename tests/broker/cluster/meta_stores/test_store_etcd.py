"""What the etcd store makes of answers and errors: a gateway with a script in the place of etcd."""

import base64
import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import httpx2
import pytest
import trio

from odradek.broker.cluster.etcd_gateway import EtcdGateway, EtcdRefused
from odradek.broker.cluster.store_etcd import EtcdStore
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.settings import ConfigError
from odradek.broker.env import (
    Changes,
    Compacted,
    Compare,
    LeaseExpired,
    OutcomeUnknown,
    StoreUnreachable,
    Versioned,
)

Answer = httpx2.Response | Exception
HEADER = {"revision": "7"}
WRITTEN = {"header": HEADER, "succeeded": True}
REFUSED_CONNECTION = httpx2.ConnectError("refused")
LOST_ANSWER = httpx2.ReadTimeout("")


def ok(body: dict[str, Any]) -> httpx2.Response:
    return httpx2.Response(200, json=body)


def error(code: int, message: str, status: int = 400) -> httpx2.Response:
    return httpx2.Response(status, json={"code": code, "message": message})


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class ScriptedEtcd:
    """Answers each request as `answer` says, and notes the requests."""

    def __init__(self, *, endpoints: int = 1, user: str = "") -> None:
        hosts = [f"http://etcd{1 + index}:2379" for index in range(endpoints)]
        self.config = BrokerConfig(
            etcd_endpoints=",".join(hosts),
            etcd_key_prefix="/o",
            etcd_user=user,
            etcd_password="secret" if user else "",
        )
        self.asked: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self.tokens: list[str | None] = []
        self.answer: Callable[[str, str], Answer] = lambda host, path: ok(WRITTEN)
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(self._serve))
        self.gateway = EtcdGateway(self.config, http, 2.0)
        self.store = EtcdStore(self.gateway, "/o")

    async def _serve(self, request: httpx2.Request) -> httpx2.Response:
        await trio.lowlevel.checkpoint()
        self.asked.append((request.url.host, request.url.path))
        self.tokens.append(request.headers.get("Authorization"))
        self.bodies.append(json.loads(request.content or b"null"))
        answer = self.answer(request.url.host, request.url.path)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def answers(self, *answers: Answer) -> None:
        """Give these answers, one after the other, and then the last of them."""
        left = list(answers)
        self.answer = lambda host, path: left.pop(0) if len(left) > 1 else left[0]

    @property
    def hosts(self) -> list[str]:
        return [host for host, _ in self.asked]


# endpoints, and what is known of a write


async def test_a_refused_connection_is_no_answer_and_the_next_endpoint_is_used() -> None:
    etcd = ScriptedEtcd(endpoints=3)
    etcd.answers(REFUSED_CONNECTION, httpx2.ConnectTimeout(""), ok(WRITTEN))
    assert await etcd.store.txn([], {"/a": b"1"}) == (True, 7)
    assert await etcd.store.txn([], {"/a": b"1"}) == (True, 7)
    assert etcd.hosts == ["etcd1", "etcd2", "etcd3", "etcd3"]


async def test_when_no_endpoint_can_be_connected_to_nothing_was_written() -> None:
    etcd = ScriptedEtcd(endpoints=2)
    etcd.answers(REFUSED_CONNECTION)
    with pytest.raises(StoreUnreachable) as unreachable:
        await etcd.store.txn([], {"/a": b"1"})
    assert unreachable.value.message == (
        "etcd cannot be reached: http://etcd1:2379: refused; http://etcd2:2379: refused."
    )


@pytest.mark.parametrize(
    "lost",
    [
        LOST_ANSWER,
        httpx2.ReadError("reset"),
        httpx2.WriteError("reset"),
        httpx2.RemoteProtocolError("the server disconnected"),
        httpx2.Response(502, text="<html>a proxy</html>"),
        httpx2.Response(200, text="<html>a proxy</html>"),
        httpx2.Response(200, json=["what is this"]),
        error(14, "etcdserver: request timed out", 503),
        error(14, "etcdserver: leader changed", 503),
        error(4, "context deadline exceeded", 504),
        error(2, "unknown", 500),
        error(13, "internal", 500),
    ],
)
async def test_a_write_without_a_clear_answer_has_an_unknown_outcome(lost: Answer) -> None:
    etcd = ScriptedEtcd(endpoints=2)
    etcd.answers(lost, ok(WRITTEN))
    with pytest.raises(OutcomeUnknown, match="It is not known whether etcd has made a change"):
        await etcd.store.txn([], {"/a": b"1"})
    assert etcd.hosts == ["etcd1"]  # sent once
    await etcd.store.txn([], {"/a": b"1"})
    assert etcd.hosts == ["etcd1", "etcd2"]


@pytest.mark.parametrize("lost", [LOST_ANSWER, error(14, "etcdserver: no leader", 503)])
async def test_a_read_without_an_answer_is_asked_again_elsewhere(lost: Answer) -> None:
    etcd = ScriptedEtcd(endpoints=2)
    etcd.answers(lost, ok({"header": HEADER}))
    assert await etcd.store.range("/") == ({}, 7)
    assert etcd.hosts == ["etcd1", "etcd2"]
    etcd.answers(lost)
    with pytest.raises(StoreUnreachable):
        await etcd.store.range("/")


async def test_a_request_that_etcd_has_put_back_is_sent_to_the_next_endpoint() -> None:
    etcd = ScriptedEtcd(endpoints=2)
    etcd.answers(error(8, "etcdserver: too many requests", 429), ok(WRITTEN))
    assert await etcd.store.txn([], {"/a": b"1"}) == (True, 7)
    etcd.answers(error(8, "etcdserver: mvcc: database space exceeded", 429))
    with pytest.raises(StoreUnreachable, match="database space exceeded"):
        await etcd.store.txn([], {"/a": b"1"})


@pytest.mark.parametrize(
    ("code", "message"),
    [(3, "too many operations in txn request"), (7, "permission denied"), (5, "Not Found")],
)
async def test_a_refused_write_is_not_sent_again(code: int, message: str) -> None:
    etcd = ScriptedEtcd(endpoints=2)
    etcd.answers(error(code, f"etcdserver: {message}"))
    with pytest.raises(EtcdRefused, match=message):
        await etcd.store.txn([], {"/a": b"1"})
    assert len(etcd.asked) == 1


async def test_calls_that_fail_together_move_on_by_one_endpoint() -> None:
    etcd = ScriptedEtcd(endpoints=3)
    etcd.answer = lambda host, path: LOST_ANSWER if host == "etcd1" else ok({"header": HEADER})
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(etcd.store.range, "/")
    assert sorted(etcd.hosts) == ["etcd1"] * 4 + ["etcd2"] * 4


# what is said in JSON


async def test_keys_are_sent_with_the_prefix_and_numbers_as_texts() -> None:
    etcd = ScriptedEtcd()
    await etcd.store.txn(
        [Compare(key="/a", mod_revision=0), Compare(key="/b", create_revision=5, mod_revision=6)],
        {"/a": b"1", "/b": None},
        lease=2**62,
    )
    key_a, key_b = b64("/o/a"), b64("/o/b")
    of_b = {"key": key_b, "result": "EQUAL"}
    assert etcd.bodies == [
        {
            "compare": [
                {"key": key_a, "target": "MOD", "result": "EQUAL", "mod_revision": "0"},
                {**of_b, "target": "MOD", "mod_revision": "6"},
                {**of_b, "target": "CREATE", "create_revision": "5"},
            ],
            "success": [
                {"request_put": {"key": key_a, "value": b64("1"), "lease": str(2**62)}},
                {"request_delete_range": {"key": key_b}},
            ],
        }
    ]


async def test_fields_that_are_left_out_are_zero() -> None:
    etcd = ScriptedEtcd()
    pair = {"key": b64("/o/a"), "create_revision": "3", "mod_revision": "4"}
    etcd.answers(ok({"header": HEADER, "kvs": [pair]}))
    empty = Versioned(value=b"", create_revision=3, mod_revision=4)
    assert await etcd.store.range("/") == ({"/a": empty}, 7)
    etcd.answers(ok({"header": HEADER}))
    assert await etcd.store.txn([], {"/a": b"1"}) == (False, 7)


async def test_a_lease_that_is_gone_is_told_from_other_refusals() -> None:
    etcd = ScriptedEtcd()
    etcd.answers(ok({"result": {"header": HEADER, "ID": "5"}}))
    with pytest.raises(LeaseExpired):
        await etcd.store.keep_lease(5)
    etcd.answers(error(5, "etcdserver: requested lease not found", 404))
    with pytest.raises(LeaseExpired):
        await etcd.store.txn([], {"/a": b"1"}, lease=5)
    await etcd.store.revoke_lease(5)
    etcd.answers(error(7, "etcdserver: permission denied", 403))
    with pytest.raises(EtcdRefused):
        await etcd.store.revoke_lease(5)


async def test_an_error_within_a_stream_is_an_error() -> None:
    etcd = ScriptedEtcd()
    etcd.answers(ok({"error": {"grpc_code": 14, "message": "etcdserver: no leader"}}))
    with pytest.raises(StoreUnreachable, match="no leader"):
        await etcd.store.keep_lease(5)


# user and password


def authenticating(etcd: ScriptedEtcd, is_valid: Callable[[str | None], bool]) -> None:
    given = 0

    def answer(host: str, path: str) -> Answer:
        nonlocal given
        if path == "/v3/auth/authenticate":
            given += 1
            return ok({"header": HEADER, "token": f"token{given}"})
        if not is_valid(etcd.tokens[-1]):
            return error(16, "etcdserver: invalid auth token", 401)
        return ok(WRITTEN)

    etcd.answer = answer


async def test_a_user_gets_one_token_for_all_calls() -> None:
    etcd = ScriptedEtcd(user="ada")
    authenticating(etcd, lambda token: token == "token1")
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(etcd.store.txn, [], {"/a": b"1"})
    assert [path for _, path in etcd.asked].count("/v3/auth/authenticate") == 1
    assert etcd.bodies[0] == {"name": "ada", "password": "secret"}
    assert etcd.tokens == [None, "token1", "token1", "token1"]


async def test_an_expired_token_is_renewed_and_the_write_sent_again() -> None:
    etcd = ScriptedEtcd(user="ada")
    authenticating(etcd, lambda token: token == "token2")
    assert await etcd.store.txn([], {"/a": b"1"}) == (True, 7)
    assert etcd.tokens == [None, "token1", None, "token2"]


async def test_a_new_token_that_is_refused_is_not_renewed_for_ever() -> None:
    etcd = ScriptedEtcd(user="ada")
    authenticating(etcd, lambda token: False)
    with pytest.raises(EtcdRefused, match="invalid auth token"):
        await etcd.store.txn([], {"/a": b"1"})
    assert etcd.tokens == [None, "token1", None, "token2"]


# watches


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


async def test_the_mark_is_written_only_if_a_watch_stays_behind() -> None:
    etcd = ScriptedEtcd()
    silent = trio.Event()

    async def content() -> AsyncIterator[bytes]:
        yield json.dumps(message(7, created=True)).encode() + b"\n"
        await silent.wait()

    def answer(host: str, path: str) -> Answer:
        if path == "/v3/watch":
            return httpx2.Response(200, content=content())
        if path == "/v3/kv/txn":
            return LOST_ANSWER
        return ok({"result": {"header": {"revision": str(revision)}, "ID": "5", "TTL": "3"}})

    etcd.answer = answer
    revision = 9
    for _ in range(3):
        await etcd.store.keep_lease(5)
    revision = 7
    await etcd.store.keep_lease(5)
    async with etcd.store.watch("/", 8) as watch:
        await anext(watch)
        await etcd.store.keep_lease(5)
        revision = 9
        await etcd.store.keep_lease(5)
        assert "/v3/kv/txn" not in [path for _, path in etcd.asked]
        assert await etcd.store.keep_lease(5) == 9
        assert [path for _, path in etcd.asked].count("/v3/kv/txn") == 1
        silent.set()


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

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(never))
    store = EtcdStore(EtcdGateway(etcd.config, http, 2.0), "/o")
    began = trio.current_time()
    with pytest.raises(StoreUnreachable, match="no answer in time"):
        async with store.watch("/", 1):
            pass
    assert trio.current_time() == began + 2.0


# the start


def test_a_broker_alone_does_not_load_the_http_client() -> None:
    code = "import sys, odradek.broker.process; sys.exit('httpx2' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name != "httpx2"]


def at_the_start(version: str, *before: Answer) -> ScriptedEtcd:
    etcd, left = ScriptedEtcd(), list(before)

    def answer(host: str, path: str) -> Answer:
        if left:
            return left.pop(0)
        return ok({"etcdserver": version} if path == "/version" else {"header": HEADER})

    etcd.answer = answer
    return etcd


@pytest.mark.parametrize("version", ["3.5.21", "3.6.16", "3.7.0-rc.1", "4.0.0"])
async def test_a_good_etcd_is_taken_without_a_word(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        await at_the_start(version).store.wait_for_etcd()
    assert lines(caplog) == []


@pytest.mark.parametrize("version", ["3.4.23", "3.5.9", "3.5.20"])
async def test_an_etcd_that_can_lose_events_is_warned_of(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    await at_the_start(version).store.wait_for_etcd()
    assert lines(caplog) == [
        f"etcd is version {version}: before 3.5.21 watches can lose events (etcd #18089, #19179). "
        "Update etcd."
    ]


async def test_the_start_waits_for_etcd_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    no_leader = error(14, "etcdserver: no leader", 503)
    version = ok({"etcdserver": "3.6.16"})
    page = httpx2.Response(404, text="<html>")
    etcd = at_the_start("3.6.16", REFUSED_CONNECTION, LOST_ANSWER, page, version, no_leader)
    with caplog.at_level(logging.INFO):
        await etcd.store.wait_for_etcd()
    assert lines(caplog) == ["waiting for etcd: http://etcd1:2379: refused", "etcd answers"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (3, "authentication failed, invalid user ID or password"),
        (3, "user name is empty"),
        (7, "permission denied"),
        (9, "authentication is not enabled"),
    ],
)
async def test_a_user_that_etcd_refuses_ends_the_start(code: int, message: str) -> None:
    etcd = at_the_start("3.6.16", ok({"etcdserver": "3.6.16"}), error(code, message))
    with pytest.raises(ConfigError, match=f"{message}. Check etcd.user, etcd.password"):
        await etcd.store.wait_for_etcd()


async def test_a_server_without_tls_is_named_so() -> None:
    """The error had no text: "waiting for etcd: https://etcd:2379: ConnectError"."""

    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.0 400 Bad Request\r\n\r\n")
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        config = BrokerConfig(etcd_endpoints=f"https://127.0.0.1:{port}")
        async with EtcdGateway.open(config, timeout_s=5) as gateway:
            with pytest.raises(StoreUnreachable, match=rf"127\.0\.0\.1:{port}: .*SSL"):
                await gateway.version()
        nursery.cancel_scope.cancel()
