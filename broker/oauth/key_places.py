"""The places where keys of tokens are read: a file, or an https address.

Both come from the broker's own settings, and from nothing that a client or a token says. No
redirect is followed, no proxy of the environment is used, and only so many bytes are read.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote, urlsplit

import trio

from odradek.broker.config.settings import ConfigError
from odradek.client.tls.contexts import read_file
from odradek.extras import imports_of

if TYPE_CHECKING:
    import httpx2

CONTENT_MAX_BYTES: Final = 1_048_576
CLOSE_SECONDS: Final = 1.0
"""The time for closing a connection, which a server may hold up."""
FILE: Final = "file"
HTTPS: Final = "https"
EXTRA: Final = "oauth"


class CannotRead(Exception):
    """The keys cannot be read now: the end of a sentence that begins with their place."""


class KeyPlace(Protocol):
    """A place where keys are read."""

    def __str__(self) -> str: ...

    async def read(self) -> bytes:
        """Return what is there now. Raises `CannotRead`."""


class KeyFile:
    """A file with keys."""

    def __init__(self, url: str) -> None:
        """Read `file:///PATH`, or `file:PATH`. Raises `ConfigError` for another host."""
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise ConfigError(
                f"sasl.oauthbearer.jwks.endpoint.url is {url}, and a file of this machine is "
                "file:///PATH, with three slashes."
            )
        self._path = unquote(parts.path)

    def __str__(self) -> str:
        return self._path

    def content(self) -> bytes:
        """Return what the file has now. Raises `CannotRead`."""
        try:
            if not Path(self._path).is_file():  # a pipe or a terminal may never end
                raise CannotRead("there is no such file")
            if Path(self._path).stat().st_size > CONTENT_MAX_BYTES:
                raise CannotRead(f"it is longer than {CONTENT_MAX_BYTES} bytes")
            return read_file(self._path)
        except OSError as error:
            raise CannotRead(str(error.strerror or error)) from None

    async def read(self) -> bytes:
        # In a thread, which a disk that stands still keeps: the loop goes on.
        return await trio.to_thread.run_sync(self.content, abandon_on_cancel=True)


class KeyServer:
    """A token server that publishes its keys."""

    def __init__(self, url: str, authorities: str) -> None:
        """`authorities` is a file with certificates, or empty. Raises `ConfigError`.

        It is read at each reading of the keys, so it may be replaced.
        """
        self._url = url
        self._authorities = authorities
        with imports_of(EXTRA, "sasl.oauthbearer.jwks.endpoint.url"):
            import httpx2
        try:
            httpx2.URL(url)
        except httpx2.InvalidURL as error:
            raise ConfigError(
                f"sasl.oauthbearer.jwks.endpoint.url is {url}, which is no address: {error}."
            ) from None
        try:
            self._tls()
        except CannotRead as error:
            raise ConfigError(f"{error}.") from None

    def __str__(self) -> str:
        return self._url

    def _tls(self) -> ssl.SSLContext:
        """Return the context for a connection. Raises `CannotRead`."""
        if not self._authorities:
            return ssl.create_default_context()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(self._authorities)
        except OSError as error:  # ssl.SSLError is one
            raise CannotRead(
                f"sasl.oauthbearer.jwks.endpoint.tls.ca cannot be read ({self._authorities}): "
                f"{error.strerror or error}"
            ) from None
        return context

    async def read(self) -> bytes:
        import httpx2

        # Bytes as they are sent: a body that is unpacked may be a thousand times as long.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        tls = await trio.to_thread.run_sync(self._tls, abandon_on_cancel=True)
        try:
            request = httpx2.Request("GET", self._url, headers=headers)
            transport = httpx2.AsyncHTTPTransport(verify=tls, trust_env=False)
            async with transport, _exchange(transport, request) as (answer, pieces):
                if answer.is_redirect:
                    raise CannotRead(
                        f"it redirects (status {answer.status_code}), which is not followed: "
                        "give the address itself"
                    )
                if answer.status_code != httpx2.codes.OK:
                    raise CannotRead(f"it answers with status {answer.status_code}")
                return await _bounded(pieces)
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
            raise CannotRead(_reason(error)) from None


@asynccontextmanager
async def _exchange(
    transport: "httpx2.AsyncHTTPTransport", request: "httpx2.Request"
) -> "AsyncIterator[tuple[httpx2.Response, AsyncIterator[bytes]]]":
    """Send a request. Enter with the answer, and its body as it arrives."""
    import httpx2

    response = await transport.handle_async_request(request)
    assert isinstance(response.stream, httpx2.AsyncByteStream), response.stream
    pieces = aiter(response.stream)
    try:
        yield response, pieces
    finally:
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await response.aclose()
            # The library's nested generators end here: trio warns of those that are left.
            with suppress(httpx2.HTTPError, httpx2.StreamError):
                async for _ in pieces:
                    pass


async def _bounded(pieces: AsyncIterator[bytes]) -> bytes:
    read = bytearray()
    async for piece in pieces:
        read += piece
        if len(read) > CONTENT_MAX_BYTES:
            raise CannotRead(f"it is longer than {CONTENT_MAX_BYTES} bytes")
    return bytes(read)


def _reason(error: BaseException) -> str:
    """Return the text of an error, or of its cause: a failed handshake has it there."""
    cause: BaseException | None = error
    while cause is not None:
        if str(cause):
            return str(cause)
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__


def place_of(url: str, authorities: str) -> KeyPlace:
    """Return the place that a setting names. Raises `ConfigError`, `ExtraMissing`."""
    scheme = urlsplit(url).scheme
    if scheme == FILE:
        return KeyFile(url)
    if scheme != HTTPS:  # whoever can change keys on their way can make tokens
        raise ConfigError(
            f"sasl.oauthbearer.jwks.endpoint.url is {url}, and begins with neither https:// nor "
            "file:///."
        )
    return KeyServer(url, authorities)
