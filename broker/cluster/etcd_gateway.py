"""Calls of etcd over its JSON gateway: endpoints, TLS, tokens, and the meaning of errors.

A call uses one endpoint until that fails, then the next. What an error says about a write decides
which exception it becomes:

- The endpoint cannot be connected to, or etcd has put the request back (no room, no leader to ask):
  nothing was written, and the next endpoint is tried. `StoreUnreachable` if it was the last.
- The answer was lost, or etcd does not know what became of the request (a time-out, a new leader):
  `OutcomeUnknown`. A call that writes nothing is tried at the next endpoint.
- etcd has judged the request and refused it: `EtcdRefused`.

This is the only module that uses httpx2, and with `store_etcd.py` the only one that is imported
just where `etcd.endpoints` is set.
"""

import contextlib
import json
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
import trio

from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.settings import ConfigError
from odradek.broker.env import OutcomeUnknown, StoreUnreachable
from odradek.protocol.errors import ErrorCode, KafkaError

Message = dict[str, Any]

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

    def __init__(self, config: BrokerConfig, http: httpx2.AsyncClient, timeout_s: float) -> None:
        self._endpoints = config.etcd_endpoints.split(",")
        self._at = 0
        self._stream_at = 0
        self._http = http
        self._timeout_s = timeout_s
        self._user = config.etcd_user
        self._password = config.etcd_password
        self._token: str | None = None
        self._authenticating = trio.Lock()

    @classmethod
    @asynccontextmanager
    async def open(cls, config: BrokerConfig, *, timeout_s: float) -> AsyncIterator["EtcdGateway"]:
        """Open a gateway without connecting. Raises `ConfigError` if a file of TLS is wrong."""
        for name in ("httpx2", "httpcore2"):  # they log every request
            logging.getLogger(name).setLevel(logging.WARNING)
        async with httpx2.AsyncClient(
            verify=_tls(config), timeout=timeout_s, trust_env=False
        ) as http:
            yield cls(config, http, timeout_s)

    async def version(self) -> str:
        """Return the version of the first endpoint that answers. Raises `StoreUnreachable`."""
        failures = []
        for endpoint in self._endpoints:
            try:
                response = await self._http.get(f"{endpoint}/version")
                return str(response.json()["etcdserver"])
            except httpx2.TransportError as error:
                failures.append(f"{endpoint}: {_reason(error)}")
                _check_trust(endpoint, error)
            except (ValueError, KeyError, TypeError):
                failures.append(f"{endpoint}: it does not answer as an etcd")
        raise StoreUnreachable("; ".join(failures))

    async def call(self, path: str, body: Message, *, writes: bool = False) -> Message:
        """Return the answer to a request.

        Raises `EtcdRefused`, `StoreUnreachable`, and for a request that writes `OutcomeUnknown`.
        """
        failures = []
        for _ in self._endpoints:
            at = self._at
            endpoint = self._endpoints[at]
            try:
                return await self._ask(endpoint, path, body)
            except _Failed as failed:
                failures.append(f"{endpoint}: {failed}")
                if self._at == at:
                    self._at = (at + 1) % len(self._endpoints)
                if writes and not failed.is_certain:
                    raise OutcomeUnknown(
                        f"It is not known whether etcd has made a change: {failures[-1]}."
                    ) from failed
        raise StoreUnreachable(f"etcd cannot be reached: {'; '.join(failures)}.")

    @asynccontextmanager
    async def stream(self, path: str, body: Message) -> AsyncIterator[AsyncIterator[Message]]:
        """Open a request whose answer is many messages. Raises `StoreUnreachable`.

        Each one uses another endpoint than the one before, which may be silent.
        """
        endpoint, response = await self._open_stream(path, body)
        messages = _Messages(endpoint, response)
        try:
            yield messages
        finally:
            with trio.CancelScope(shield=True):
                await response.aclose()
                await messages.finish()

    async def _open_stream(self, path: str, body: Message) -> tuple[str, httpx2.Response]:
        failures = []
        for _ in self._endpoints:
            endpoint = self._endpoints[self._stream_at]
            self._stream_at = (self._stream_at + 1) % len(self._endpoints)
            try:
                token = await self._valid_token(endpoint)
                request = self._request(endpoint, path, body, token, read_timeout_s=None)
                with trio.fail_after(self._timeout_s):
                    return endpoint, await self._http.send(request, stream=True)
            except (_Failed, httpx2.TransportError, trio.TooSlowError) as error:
                failures.append(f"{endpoint}: {_reason(error)}")
        raise StoreUnreachable(f"etcd cannot be watched: {'; '.join(failures)}.")

    def forget_token(self) -> None:
        """Ask for a new token before the next request."""
        self._token = None

    async def _ask(self, endpoint: str, path: str, body: Message) -> Message:
        """Return the answer of one endpoint. Raises `_Failed`, `EtcdRefused`."""
        token = await self._valid_token(endpoint)
        try:
            return await self._post(endpoint, path, body, token)
        except EtcdRefused as refused:
            # A token ends after some minutes, and with each change of users. etcd checks it before
            # anything else, so nothing was written.
            is_old = refused.status == UNAUTHENTICATED or OLD_TOKEN in refused.reason
            if token is None or not is_old:
                raise
            if token == self._token:
                self._token = None
        return await self._post(endpoint, path, body, await self._valid_token(endpoint))

    async def _valid_token(self, endpoint: str) -> str | None:
        """Return the token of the user; None without a user. Raises as `_ask`."""
        if not self._user:
            return None
        async with self._authenticating:
            if self._token is None:
                who = {"name": self._user, "password": self._password}
                answer = await self._post(endpoint, "/v3/auth/authenticate", who, None)
                self._token = str(answer["token"])
            return self._token

    def _request(
        self,
        endpoint: str,
        path: str,
        body: Message,
        token: str | None,
        *,
        read_timeout_s: float | None,
    ) -> httpx2.Request:
        return self._http.build_request(
            "POST",
            f"{endpoint}{path}",
            content=json.dumps(body),
            headers={"Authorization": token} if token else {},
            timeout=httpx2.Timeout(self._timeout_s, read=read_timeout_s),
        )

    async def _post(self, endpoint: str, path: str, body: Message, token: str | None) -> Message:
        try:
            request = self._request(endpoint, path, body, token, read_timeout_s=self._timeout_s)
            response = await self._http.send(request)
        except httpx2.TransportError as error:
            never_sent = isinstance(
                error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout
            )
            raise _Failed(_reason(error), is_certain=never_sent) from error
        try:
            answer: Message = response.json()
            failure = answer if response.status_code != httpx2.codes.OK else answer.get("error")
            if not failure:
                return answer
            status = int(failure.get("code") or failure.get("grpc_code") or -1)
            message = str(failure["message"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"it does not answer as an etcd ({response.status_code})"
            raise _Failed(reason, is_certain=False) from error
        if status in REFUSED or NOT_ENABLED in message:
            raise EtcdRefused(status, message)
        raise _Failed(message, is_certain=status in PUT_BACK)


class _Messages(AsyncIterator[Message]):
    """The messages of an answer, one a line. It ends with `StoreUnreachable` only."""

    def __init__(self, endpoint: str, response: httpx2.Response) -> None:
        self._endpoint = endpoint
        self._lines = response.aiter_lines()

    async def __anext__(self) -> Message:
        try:
            while not (line := await anext(self._lines)):
                pass
            message: Message = json.loads(line)
        except (StopAsyncIteration, httpx2.TransportError, ValueError) as error:
            reason = f"The watch of etcd has ended: {self._endpoint}: {_reason(error)}."
            raise StoreUnreachable(reason) from error
        return message

    async def finish(self) -> None:
        """Let the nested generators of httpx2 end, after the response was closed."""
        # trio warns of a generator that is collected before its end.
        with contextlib.suppress(httpx2.TransportError, httpx2.StreamError):
            async for _ in self._lines:
                pass


def _reason(error: Exception) -> str:
    if isinstance(error, httpx2.TimeoutException | trio.TooSlowError):
        return "no answer in time"
    if isinstance(error, StopAsyncIteration):
        return "it was closed"
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
