"""The etcd store and real etcds: others who use the same, passwords, TLS, members that die."""

import logging
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import pytest
import trio

from odradek.broker.cluster.guarded_write import guarded_write
from odradek.broker.cluster.store_etcd import EtcdStore
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.settings import ConfigError
from odradek.broker.environment.env import Compare, OutcomeUnknown, StoreUnreachable
from tests.peers.etcd_server import EtcdNode, RealEtcd

pytestmark = [pytest.mark.peers]
HANGS_S = 60


@asynccontextmanager
async def opened(etcd: RealEtcd, prefix: str, **settings: Any) -> AsyncIterator[EtcdStore]:
    endpoints = ",".join(etcd.endpoints)
    config = replace(BrokerConfig(etcd_endpoints=endpoints, etcd_key_prefix=prefix), **settings)
    with trio.fail_after(HANGS_S):
        async with EtcdStore.open(config, timeout_s=1.0, rng=Random(1)) as store:
            yield store


# other users of the same etcd


async def test_two_prefixes_do_not_see_each_other(real_etcd: RealEtcd) -> None:
    async with opened(real_etcd, "/shared") as one, opened(real_etcd, "/shared2") as other:
        revision = (await other.range("/"))[1]
        async with one.watch("/", revision + 1) as watch:
            await anext(watch)
            await other.txn([], {"/a": b"other"})
            await one.txn([], {"/b": b"one"})
            assert list((await anext(watch)).values) == ["/b"]
        assert list((await one.range("/"))[0]) == ["/b"]
        assert list((await other.range("/"))[0]) == ["/a"]


async def test_a_watch_keeps_up_with_what_others_write(real_etcd: RealEtcd) -> None:
    """Otherwise it would look silent, and be replaced for ever."""
    async with opened(real_etcd, "/keepsup") as store, opened(real_etcd, "/busy") as busy:
        lease = await store.grant_lease(60)
        _, revision = await store.range("/")
        async with store.watch("/", revision + 1) as watch:
            await anext(watch)
            _, foreign = await busy.txn([], {"/a": b"1"})
            assert await store.keep_lease(lease) == foreign
            await store.show_progress()
            progress = await anext(watch)
            assert (progress.values, progress.revision) == ({}, foreign + 1)
            assert await store.keep_lease(lease) == foreign + 1
            assert (await store.range("/")) == ({}, foreign + 1)
        await store.revoke_lease(lease)


async def test_the_http_client_does_not_log_every_request(
    real_etcd: RealEtcd, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        async with opened(real_etcd, "/quiet") as store:
            await store.range("/")
    assert caplog.messages == []


# lost answers


class LosesAnswers(httpx2.AsyncBaseTransport):
    """Sends a request, and loses its answer where `loses` has a True."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, loses: Iterator[bool]) -> None:
        self._inner = inner
        self._loses = loses

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if request.url.path == "/v3/kv/txn" and next(self._loses, False):
            await response.aread()
            raise httpx2.ReadTimeout("lost")
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def lose(store: EtcdStore, *outcomes: bool) -> None:
    pool = store._gateway._connections._pool
    pool.transport = LosesAnswers(pool.transport, iter(outcomes))


async def test_a_write_whose_answer_was_lost_is_found_by_reading(real_etcd: RealEtcd) -> None:
    async with opened(real_etcd, "/lost") as store:
        _, before = await store.range("/")
        absent = [Compare(key="/a", mod_revision=0)]
        lose(store, True, True)
        assert await guarded_write(store, absent, {"/a": b"mine"}) == (True, before + 1)
        lose(store, True)
        with pytest.raises(OutcomeUnknown):
            await store.txn([], {"/a": b"2"})
        assert (await store.range("/a"))[0]["/a"].value == b"2"


# user and password


def etcdctl(etcd: RealEtcd, path: str, body: dict[str, Any], token: str = "") -> dict[str, Any]:
    headers = {"Authorization": token} if token else {}
    response = httpx2.post(f"{etcd.endpoints[0]}{path}", json=body, headers=headers)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


@pytest.fixture(scope="module")
def etcd_with_users() -> Iterator[RealEtcd]:
    """An etcd in which `ada` may use the prefix `/ada` and nothing else."""
    with RealEtcd(options=["--auth-token-ttl", "1"]) as etcd:
        for user, role in (("root", "root"), ("ada", "ada")):
            etcdctl(etcd, "/v3/auth/role/add", {"name": role})
            etcdctl(etcd, "/v3/auth/user/add", {"name": user, "password": f"{user}'s secret"})
            etcdctl(etcd, "/v3/auth/user/grant", {"user": user, "role": role})
        every = {"permType": "READWRITE", "key": "L2FkYS8=", "range_end": "L2FkYTA="}  # /ada/ /ada0
        etcdctl(etcd, "/v3/auth/role/grant", {"name": "ada", "perm": every})
        etcdctl(etcd, "/v3/auth/enable", {})
        yield etcd


ADA = {"etcd_user": "ada", "etcd_password": "ada's secret"}


async def test_a_user_works_within_the_prefix(etcd_with_users: RealEtcd) -> None:
    async with opened(etcd_with_users, "/ada", **ADA) as store:
        lease = await store.grant_lease(60)
        _, revision = await store.txn([], {"/a": b"1"}, lease=lease)
        assert await store.keep_lease(lease) == revision
        async with store.watch("/", revision) as watch:
            assert list((await anext(watch)).values) == ["/a"]
        await store.revoke_lease(lease)
        assert (await store.range("/"))[0] == {}


async def test_a_token_that_has_expired_is_renewed(etcd_with_users: RealEtcd) -> None:
    async with opened(etcd_with_users, "/ada", **ADA) as store:
        token = store._gateway._token
        with trio.fail_after(HANGS_S):
            while store._gateway._token == token:
                await trio.sleep(1.5)  # longer than its life
                assert (await store.txn([], {"/b": b"1"}))[0]
        _, revision = await store.range("/")
        store._gateway._token = "wrong"
        with pytest.raises(StoreUnreachable, match="invalid auth token"):
            async with store.watch("/", revision + 1) as watch:
                await anext(watch)
        async with store.watch("/", revision + 1) as watch:
            assert (await anext(watch)).revision == revision


@pytest.mark.parametrize(
    ("prefix", "settings"),
    [
        ("/ada", {}),
        ("/ada", {"etcd_user": "ada", "etcd_password": "wrong"}),
        ("/bob", ADA),
    ],
)
async def test_what_a_user_may_not_do_ends_the_start(
    etcd_with_users: RealEtcd, prefix: str, settings: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match=r"Check etcd.user, etcd.password, and the user's perm"):
        async with opened(etcd_with_users, prefix, **settings):
            pass


async def test_a_user_for_an_etcd_without_users_ends_the_start(real_etcd: RealEtcd) -> None:
    with pytest.raises(ConfigError, match="authentication is not enabled"):
        async with opened(real_etcd, "/ada", **ADA):
            pass


# TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two certificate authorities, `ca` and `other`, and what `ca` has signed for 127.0.0.1."""
    here = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=here, check=True, capture_output=True)

    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for name in ("ca", "other"):
        openssl(*new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "subjectAltName=IP:127.0.0.1")
    openssl(*new, *signed, "-subj", "/CN=node", "-keyout", "node.key", "-out", "node.pem")
    return here


@pytest.fixture(scope="module")
def etcd_with_tls(certificates: Path) -> Iterator[RealEtcd]:
    options = [
        *("--cert-file", str(certificates / "node.pem")),
        *("--key-file", str(certificates / "node.key")),
        *("--trusted-ca-file", str(certificates / "ca.pem"), "--client-cert-auth"),
    ]
    with RealEtcd(options=options, scheme="https") as etcd:
        yield etcd


def tls(certificates: Path, **files: str) -> dict[str, str]:
    return {f"etcd_tls_{name}": str(certificates / file) for name, file in files.items()}


async def test_both_sides_show_certificates(etcd_with_tls: RealEtcd, certificates: Path) -> None:
    settings = tls(certificates, ca="ca.pem", cert="node.pem", key="node.key")
    async with opened(etcd_with_tls, "/tls", **settings) as store:
        _, revision = await store.txn([], {"/a": b"1"})
        async with store.watch("/", revision) as watch:
            assert list((await anext(watch)).values) == ["/a"]


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, r"The certificate of https://127.0.0.1:\d+ is not trusted .*etcd.tls.ca"),
        ({"ca": "other.pem"}, r"The certificate of https://127.0.0.1:\d+ is not trusted"),
        ({"ca": "ca.pem"}, r"https://127.0.0.1:\d+ refuses this broker .*etcd.tls.cert"),
        (
            {"ca": "ca.pem", "cert": "other.pem", "key": "other.key"},
            r"https://127.0.0.1:\d+ refuses this broker .*etcd.tls.cert",
        ),
        ({"ca": "absent.pem"}, r"etcd.tls.ca cannot be read \(.*absent.pem\): No such file"),
        ({"ca": "ca.key"}, r"etcd.tls.ca cannot be read \(.*ca.key\)"),
        (
            {"ca": "ca.pem", "cert": "node.pem", "key": "other.key"},
            r"etcd.tls.cert cannot be read \(.*node.pem, .*other.key\)",
        ),
    ],
)
async def test_certificates_that_do_not_fit_end_the_start(
    etcd_with_tls: RealEtcd, certificates: Path, files: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        async with opened(etcd_with_tls, "/tls", **tls(certificates, **files)):
            pass


# three members


@pytest.fixture
def three() -> Iterator[RealEtcd]:
    with RealEtcd(nodes=3) as etcd:
        yield etcd


def leader_of(etcd: RealEtcd) -> EtcdNode:
    for node in etcd.nodes:
        status = httpx2.post(f"{node.client_url}/v3/maintenance/status", json={}).json()
        if status["leader"] == status["header"]["member_id"]:
            return node
    raise AssertionError("no leader")


async def until_reached(store: EtcdStore, revision: int, wanted: int) -> int:
    """Follow the store from a revision, as a broker does; return the endpoints it took."""
    opened = 0
    while True:
        opened += 1
        try:
            with trio.move_on_after(1):
                async with store.watch("/", revision + 1) as watch:
                    async for changes in watch:
                        revision = changes.revision
                        if revision >= wanted:
                            return opened
        except StoreUnreachable:
            await trio.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_writes_leases_and_watches_go_on_without_the_leader(
    three: RealEtcd, number: signal.Signals
) -> None:
    # Its endpoint is the first that is used.
    leader = leader_of(three)
    three.nodes.sort(key=lambda node: node is not leader)
    async with opened(three, "/three") as store:
        lease = await store.grant_lease(30)
        _, before = await store.txn([], {"/leased": b"1"}, lease=lease)
        leader.send(number)
        absent = [Compare(key="/a", mod_revision=0)]
        while True:
            try:
                assert (await guarded_write(store, absent, {"/a": b"1"})) == (True, before + 1)
                break
            except StoreUnreachable:
                await trio.sleep(0.1)
        assert await store.keep_lease(lease) == before + 1
        await until_reached(store, before, before + 1)
        assert list((await store.range("/"))[0]) == ["/a", "/leased"]
