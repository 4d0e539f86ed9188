"""Calls of etcd over its JSON gateway: endpoints, TLS, tokens, and the meaning of errors.

A call uses one endpoint until that fails, then the next. What an error says about a write decides
which exception it becomes:

- The endpoint cannot be connected to, or etcd has put the request back (no room, no leader to ask):
  nothing was written, and the next endpoint is tried. `StoreUnreachable` if it was the last.
- The answer was lost, is not etcd's (`etcd_answers.py`) or of another etcd than before, or etcd
  does not know what became of the request (a time-out, a new leader): `OutcomeUnknown`. A call that
  writes nothing is tried at the next endpoint.
- etcd has judged the request and refused it: `EtcdRefused`.

Calls that find no answer slow down those that follow (`etcd_pace.py`). Leases do not wait for them:
they are kept alive by calls of their own (`keep`).

This module and `etcd_connections.py` are the only ones that use httpx2. With the others of etcd
they are imported just where `etcd.endpoints` is set.
"""

import json
import logging
import math
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from random import Random
from typing import Any, Final, TypeVar

import httpx2
import trio

from odradek.broker.cluster.etcd_answers import (
    EtcdAnswer,
    Failure,
    Fields,
    NotEtcd,
    WatchAnswer,
    parse,
    read_failure,
    read_token,
    read_version,
)
from odradek.broker.cluster.etcd_connections import LIMITS, EtcdConnections, Pieces, lines, whole
from odradek.broker.cluster.etcd_pace import Pace, drawn
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.settings import ConfigError
from odradek.broker.environment.env import Compacted, OutcomeUnknown, StoreUnreachable
from odradek.protocol.errors import ErrorCode, KafkaError

Message = dict[str, Any]
A = TypeVar("A", bound=EtcdAnswer)
Read = Callable[[Fields], A]

# gRPC's status codes, as etcd uses them
INVALID_ARGUMENT: Final = 3
NOT_FOUND: Final = 5
PERMISSION_DENIED: Final = 7
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
OUT_OF_RANGE: Final = 11
UNIMPLEMENTED: Final = 12
UNAUTHENTICATED: Final = 16
REFUSED: Final = frozenset(
    {INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, OUT_OF_RANGE, UNIMPLEMENTED, UNAUTHENTICATED}
)
PUT_BACK: Final = frozenset({RESOURCE_EXHAUSTED, FAILED_PRECONDITION})
OLD_TOKEN: Final = "revision of auth store is old"
NOT_ENABLED: Final = "authentication is not enabled"

LEASE_ATTEMPTS: Final = 3
"""Requests by which a lease is kept alive, if none before was answered."""
LEASE_PAUSE_S: Final = 0.1
"""The longest pause after one that has failed."""


class EtcdRefused(KafkaError):
    """etcd has refused a request: nothing was written."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, f"etcd refused a request: {message}.")
        self.status = status
        self.reason = message


class _Failed(Exception):
    """An endpoint has not answered a request. `is_certain`: nothing was written."""

    def __init__(self, reason: str, *, is_certain: bool) -> None:
        super().__init__(reason)
        self.is_certain = is_certain


class EtcdGateway:
    """The endpoints of one etcd. Make it with `open`."""

    def __init__(
        self,
        config: BrokerConfig,
        make_connections: Callable[[], httpx2.AsyncBaseTransport],
        timeout_s: float,
        rng: Random,
    ) -> None:
        self._endpoints = config.etcd_endpoints.split(",")
        self._at = 0
        self._stream_at = 0
        self._lease_at = 0
        self._connections = EtcdConnections(make_connections)
        self._lease_connections = EtcdConnections(make_connections)
        self._pace = Pace(rng, "calls")
        self._watch_pace = Pace(rng, "watches")
        self._rng = rng
        self._timeout_s = timeout_s
        self._user = config.etcd_user
        self._password = config.etcd_password
        self._token: str | None = None
        self._authenticating = trio.Lock()
        self._cluster_id = 0

    @classmethod
    @asynccontextmanager
    async def open(
        cls, config: BrokerConfig, *, timeout_s: float, rng: Random
    ) -> AsyncIterator["EtcdGateway"]:
        """Open a gateway without connecting. Raises `ConfigError` if a file of TLS is wrong.

        `timeout_s` is the time for connecting to an endpoint, and again for its answer.
        """
        logging.getLogger("httpcore2").setLevel(logging.WARNING)  # it logs every request
        tls = _tls(config)

        def make() -> httpx2.AsyncBaseTransport:
            return httpx2.AsyncHTTPTransport(verify=tls, trust_env=False, limits=LIMITS)

        gateway = cls(config, make, timeout_s, rng)
        try:
            yield gateway
        finally:
            await gateway._connections.aclose()
            await gateway._lease_connections.aclose()

    async def version(self) -> str:
        """Return the version of the first endpoint that answers. Raises `StoreUnreachable`."""
        failures = []
        for endpoint in self._endpoints:
            request = self._request("GET", f"{endpoint}/version", None, None, self._timeout_s)
            try:
                with trio.fail_after(2 * self._timeout_s):
                    async with self._connections.exchange(request) as (_, pieces):
                        return read_version(parse(await whole(pieces)))
            except (httpx2.TransportError, httpx2.StreamError, trio.TooSlowError) as error:
                failures.append(f"{endpoint}: {_reason(error)}")
                _check_trust(endpoint, error)
            except NotEtcd:
                failures.append(f"{endpoint}: it does not answer as an etcd")
        raise StoreUnreachable("; ".join(failures))

    async def call(self, path: str, body: Message, read: Read[A], *, writes: bool = False) -> A:
        """Return the answer to a request, as `read` reads it.

        Raises `EtcdRefused`, `StoreUnreachable`, and for a request that writes `OutcomeUnknown`.
        """
        async with self._pace.call(self._timeout_s):
            failures = []
            for _ in self._endpoints:
                at = self._at
                endpoint = self._endpoints[at]
                try:
                    return await self._ask(
                        endpoint, path, body, read, self._connections, self._timeout_s
                    )
                except _Failed as failed:
                    failures.append(f"{endpoint}: {failed}")
                    if self._at == at:
                        self._at = (at + 1) % len(self._endpoints)
                    if writes and not failed.is_certain:
                        raise OutcomeUnknown(
                            f"It is not known whether etcd has made a change: {failures[-1]}."
                        ) from failed
            raise StoreUnreachable(f"etcd cannot be reached: {'; '.join(failures)}.")

    async def keep(self, path: str, body: Message, read: Read[A]) -> A:
        """Return the answer to a call that may be sent more than once, as soon as there is one.

        It has connections of its own and waits for no other call. If an endpoint is slow, the next
        one is asked over a new connection while the first may still answer: only the caller knows
        when it is too late. Raises `EtcdRefused`, `StoreUnreachable`.
        """
        connections = self._lease_connections
        found: list[A | EtcdRefused] = []
        failures: list[str] = []
        progress = trio.Event()

        async def ask(at: int) -> None:
            endpoint = self._endpoints[at]
            try:
                found.append(await self._ask(endpoint, path, body, read, connections, math.inf))
                self._lease_at = at
            except EtcdRefused as refused:
                found.append(refused)
            except _Failed as failed:
                failures.append(f"{endpoint}: {failed}")
            progress.set()

        count = len(self._endpoints)
        most = max(LEASE_ATTEMPTS, count)
        async with trio.open_nursery() as nursery:
            first, asked = self._lease_at, 0
            while not found and len(failures) < most:
                patience_s = math.inf
                if asked < most:
                    connections.renew()
                    nursery.start_soon(ask, (first + asked) % count)
                    asked += 1
                    patience_s = drawn(self._rng, self._timeout_s)
                with trio.move_on_after(patience_s):
                    await progress.wait()
                    if not found:
                        await trio.sleep(drawn(self._rng, LEASE_PAUSE_S))
                progress = trio.Event()
            nursery.cancel_scope.cancel()
        if not found:
            raise StoreUnreachable(f"etcd cannot be reached: {'; '.join(failures)}.")
        if isinstance(found[0], EtcdRefused):
            raise found[0]
        return found[0]

    @asynccontextmanager
    async def stream(
        self, path: str, body: Message, read: Callable[[Fields], WatchAnswer]
    ) -> AsyncIterator[AsyncIterator[WatchAnswer]]:
        """Open a watch. Raises `StoreUnreachable`, which also ends its messages.

        Each one uses another endpoint than the one before, which may be silent.
        """
        await self._watch_pace.turn(math.inf)
        try:
            async with (
                self._open_stream(path, body) as (endpoint, status, pieces),
                aclosing(lines(pieces)) as each,
                aclosing(self._messages(endpoint, status, each, read)) as messages,
            ):
                yield messages
        except (StoreUnreachable, Compacted) as error:
            self._watch_pace.note_failed(str(error))
            raise
        finally:
            self._watch_pace.note_given_up()

    @asynccontextmanager
    async def _open_stream(
        self, path: str, body: Message
    ) -> AsyncIterator[tuple[str, int, Pieces]]:
        failures = []
        async with AsyncExitStack() as stack:
            for _ in self._endpoints:
                endpoint = self._endpoints[self._stream_at]
                self._stream_at = (self._stream_at + 1) % len(self._endpoints)
                try:
                    token = await self._valid_token(endpoint, self._connections)
                    request = self._request("POST", f"{endpoint}{path}", body, token)
                    with trio.fail_after(self._timeout_s):
                        exchange = self._connections.exchange(request)
                        status, pieces = await stack.enter_async_context(exchange)
                except (_Failed, httpx2.TransportError, trio.TooSlowError) as error:
                    failures.append(f"{endpoint}: {_reason(error)}")
                    continue
                yield endpoint, status, pieces
                return
        raise StoreUnreachable(f"etcd cannot be watched: {'; '.join(failures)}.")

    async def _messages(
        self,
        endpoint: str,
        status: int,
        each: AsyncIterator[bytes],
        read: Callable[[Fields], WatchAnswer],
    ) -> AsyncGenerator[WatchAnswer]:
        """Yield the messages of a watch. They end with `StoreUnreachable`."""
        try:
            async for line in each:
                answer = self._answer(parse(line), status, read)
                if isinstance(answer, Failure):
                    self.forget_token()  # it may be the reason
                    raise StoreUnreachable(f"etcd has ended a watch: {answer.message}.")
                if not answer.is_canceled:
                    self._watch_pace.note_answered()
                yield answer
            reason = "it was closed"
        except (httpx2.TransportError, httpx2.StreamError, NotEtcd) as error:
            reason = _reason(error)
        raise StoreUnreachable(f"The watch of etcd has ended: {endpoint}: {reason}.")

    def forget_token(self) -> None:
        """Ask for a new token before the next request."""
        self._token = None

    async def _ask(
        self,
        endpoint: str,
        path: str,
        body: Message,
        read: Read[A],
        connections: EtcdConnections,
        limit_s: float,
    ) -> A:
        """Return the answer of one endpoint. Raises `_Failed`, `EtcdRefused`."""
        url = f"{endpoint}{path}"
        token = await self._valid_token(endpoint, connections)
        try:
            return await self._post(url, body, read, connections, token, limit_s)
        except EtcdRefused as refused:
            # A token ends after some minutes, and with each change of users. etcd checks it before
            # anything else, so nothing was written.
            is_old = refused.status == UNAUTHENTICATED or OLD_TOKEN in refused.reason
            if token is None or not is_old:
                raise
            if token == self._token:
                self._token = None
        token = await self._valid_token(endpoint, connections)
        return await self._post(url, body, read, connections, token, limit_s)

    async def _valid_token(self, endpoint: str, connections: EtcdConnections) -> str | None:
        """Return the token of the user; None without a user. Raises as `_ask`."""
        if not self._user:
            return None
        async with self._authenticating:
            if self._token is None:
                who = {"name": self._user, "password": self._password}
                url = f"{endpoint}/v3/auth/authenticate"
                answer = await self._post(url, who, read_token, connections, None, self._timeout_s)
                self._token = answer.token
            return self._token

    def _request(
        self,
        method: str,
        url: str,
        body: Message | None,
        token: str | None,
        limit_s: float | None = None,
    ) -> httpx2.Request:
        """Return a request. `limit_s` is the time for connecting, and for each step after it."""
        return httpx2.Request(
            method,
            url,
            content=None if body is None else json.dumps(body),
            headers={"Authorization": token} if token else {},
            extensions={"timeout": httpx2.Timeout(limit_s).as_dict()},
        )

    async def _post(
        self,
        url: str,
        body: Message,
        read: Read[A],
        connections: EtcdConnections,
        token: str | None,
        limit_s: float,
    ) -> A:
        """Send one request. Raises `_Failed`, `EtcdRefused`."""
        step_s = None if limit_s == math.inf else limit_s
        request = self._request("POST", url, body, token, step_s)
        try:
            with trio.fail_after(2 * limit_s):
                async with connections.exchange(request) as (status, pieces):
                    answer = self._answer(parse(await whole(pieces)), status, read)
        except (httpx2.TransportError, httpx2.StreamError, trio.TooSlowError) as error:
            never_sent = isinstance(
                error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout
            )
            raise _Failed(_reason(error), is_certain=never_sent) from error
        except NotEtcd as error:
            reason = f"it does not answer as an etcd ({error})"
            raise _Failed(reason, is_certain=False) from error
        if not isinstance(answer, Failure):
            return answer
        if answer.status in REFUSED or NOT_ENABLED in answer.message:
            raise EtcdRefused(answer.status, answer.message)
        raise _Failed(answer.message, is_certain=answer.status in PUT_BACK)

    def _answer(self, fields: Fields, status: int, read: Read[A]) -> A | Failure:
        """Read an answer. Raises `NotEtcd`, also for the answer of another etcd than before."""
        failure = read_failure(fields, is_error=status != httpx2.codes.OK)
        if failure is not None:
            return failure
        answer = read(fields)
        cluster_id = answer.header.cluster_id
        self._cluster_id = self._cluster_id or cluster_id
        if cluster_id != self._cluster_id:
            raise NotEtcd(
                f"it is of the cluster {cluster_id:x}, and earlier answers were of "
                f"{self._cluster_id:x}: restart this broker if etcd was made anew"
            )
        return answer


def _reason(error: Exception) -> str:
    if isinstance(error, httpx2.TimeoutException | trio.TooSlowError):
        return "no answer in time"
    cause: BaseException | None = error
    while cause is not None:  # a failed TLS handshake has its text in the cause
        if str(cause):
            return str(cause)
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__


def _tls(config: BrokerConfig) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for name, load, files in (
        ("etcd.tls.ca", context.load_verify_locations, (config.etcd_tls_ca,)),
        ("etcd.tls.cert", context.load_cert_chain, (config.etcd_tls_cert, config.etcd_tls_key)),
    ):
        if not files[0]:
            continue
        try:
            load(*files)
        except OSError as error:  # ssl.SSLError is one
            raise ConfigError(
                f"{name} cannot be read ({', '.join(files)}): {error.strerror or error}."
            ) from None
    return context


def _check_trust(endpoint: str, error: BaseException) -> None:
    """Raise `ConfigError` if a connection failed because one side does not trust the other."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise ConfigError(
                f"The certificate of {endpoint} is not trusted ({cause.verify_message}): give the "
                "certificates that sign it in etcd.tls.ca."
            ) from None
        if isinstance(cause, ssl.SSLError) and "alert" in str(cause):
            raise ConfigError(
                f"{endpoint} refuses this broker ({cause.reason}): check etcd.tls.cert and "
                "etcd.tls.key."
            ) from None
        cause = cause.__cause__ or cause.__context__
