"""The proof of who a client is: a name and a password, or tokens."""

import secrets
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

import trio

from odradek.client.sasl.exchanges import (
    Exchange,
    Keys,
    OAuthExchange,
    PlainExchange,
    ScramExchange,
)
from odradek.client.sasl.tokens import TokenSource
from odradek.protocol import scram

NONCE_BYTES: Final = 24
SALT_BYTES: Final = 16
AT_ONCE: Final = 8192
"""Up to so many iterations take a few milliseconds, and are computed without a thread."""


class Credentials(Protocol):
    """The proof that all connections of a client share."""

    @property
    def mechanism(self) -> str:
        """The name of the SASL mechanism."""

    async def exchange(self) -> Exchange:
        """Begin an authentication. Raises `OdradekError` if there is no token."""


class PlainCredentials:
    mechanism = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        self._username = username
        self._password = password

    async def exchange(self) -> Exchange:
        return PlainExchange(self._username, self._password)


def new_salt() -> bytes:
    return secrets.token_bytes(SALT_BYTES)


async def salted_password(algorithm: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the secret of a password. The loop goes on meanwhile if that takes long."""
    compute = partial(scram.salted_password, algorithm, password, salt, iterations)
    if iterations > AT_ONCE:
        with suppress(RuntimeError):  # no thread can start now
            return await trio.to_thread.run_sync(compute, abandon_on_cancel=True)
    return compute()


class ScramCredentials:
    """A name and a password for SCRAM. The keys are made once for each salt: that is slow."""

    def __init__(self, mechanism: str, username: str, password: str) -> None:
        self.mechanism = mechanism
        self._algorithm = scram.ALGORITHMS[mechanism]
        self._username = username
        self._password = password
        self._made_of: tuple[bytes, int] | None = None
        self._keys: Keys = (b"", b"")

    async def exchange(self) -> Exchange:
        nonce = secrets.token_urlsafe(NONCE_BYTES)
        return ScramExchange(self._algorithm, self._username, nonce, self._keys_of)

    async def _keys_of(self, salt: bytes, iterations: int) -> Keys:
        if self._made_of == (salt, iterations):  # brokers of a cluster have the same
            return self._keys
        salted = await salted_password(self._algorithm, self._password, salt, iterations)
        algorithm = self._algorithm
        keys = scram.client_key(algorithm, salted), scram.server_key(algorithm, salted)
        self._made_of, self._keys = (salt, iterations), keys
        return keys


class TokenCredentials:
    mechanism = "OAUTHBEARER"

    def __init__(self, source: TokenSource) -> None:
        self._source = source

    async def exchange(self) -> Exchange:
        token = await self._source.token()
        return OAuthExchange(token.value, token.extensions)
