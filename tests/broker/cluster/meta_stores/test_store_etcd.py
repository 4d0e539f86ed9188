"""What the etcd store makes of answers and errors: a gateway with a script in the place of etcd."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from random import Random

import httpx2
import pytest
import trio

from odradek.broker.cluster.etcd_gateway import EtcdGateway, EtcdRefused
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.settings import ConfigError
from odradek.broker.environment.env import (
    Compare,
    LeaseExpired,
    OutcomeUnknown,
    StoreUnreachable,
    Versioned,
)
from tests.broker.cluster.meta_stores.scripted_etcd import (
    HEADER,
    LOST_ANSWER,
    REFUSED_CONNECTION,
    WRITTEN,
    Answer,
    ScriptedEtcd,
    b64,
    error,
    ok,
)

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
        async with EtcdGateway.open(config, timeout_s=5, rng=Random(1)) as gateway:
            with pytest.raises(StoreUnreachable, match=rf"127\.0\.0\.1:{port}: .*SSL"):
                await gateway.version()
        nursery.cancel_scope.cancel()
