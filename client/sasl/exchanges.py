"""The client's half of each SASL mechanism: tokens in, tokens out.

An exchange begins with `first`. `respond` takes the broker's answer, and returns the next token or
None when the exchange is over. The broker ends it with an error code; then nothing is asked here.
"""

import base64
import binascii
import hmac
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from odradek.protocol import scram
from odradek.protocol.errors import ProtocolError
from odradek.protocol.text import shortened

ITERATIONS_MAX: Final = 1_000_000
"""More are refused: a broker would choose how long this side computes."""
SEPARATOR: Final = "\x01"
_NUMBER: Final = re.compile("[1-9][0-9]*")


class UnexpectedAnswer(Exception):
    """The broker has answered otherwise than the mechanism wants: the end of a sentence."""


class Exchange(Protocol):
    """The client's half of one authentication."""

    def first(self) -> bytes:
        """Return the first token."""

    async def respond(self, answer: bytes) -> bytes | None:
        """Return the token after an answer, or None at the end. Raises `UnexpectedAnswer`."""


class PlainExchange:
    """PLAIN (RFC 4616): one token with name and password."""

    def __init__(self, username: str, password: str) -> None:
        self._token = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    async def respond(self, answer: bytes) -> bytes | None:
        return None


Keys = tuple[bytes, bytes]
"""The client key and the server key of SCRAM."""
KeysOf = Callable[[bytes, int], Awaitable[Keys]]
"""A function that makes the keys of a salt and a number of iterations, which takes milliseconds."""


class ScramExchange:
    """SCRAM: two tokens, and the broker's signature, which shows that it knows the password."""

    def __init__(self, algorithm: str, username: str, nonce: str, keys_of: KeysOf) -> None:
        self._algorithm = algorithm
        self._nonce = nonce
        self._first = f"n={scram.escaped_name(username)},r={nonce}"
        self._keys_of = keys_of
        self._signature: bytes | None = None
        """What the broker must sign with, from the second token on."""

    def first(self) -> bytes:
        return (scram.NO_BINDING + self._first).encode()

    async def respond(self, answer: bytes) -> bytes | None:
        try:
            text = answer.decode()
            found = scram.attributes(text)
        except (UnicodeDecodeError, ProtocolError):
            raise UnexpectedAnswer("its answer is no message of SCRAM") from None
        if "e" in found:
            raise UnexpectedAnswer(f"it answered {shortened(found['e'])}")
        if self._signature is None:
            return await self._prove(text, found)
        self._check_signature(found.get("v", ""))
        return None

    async def _prove(self, challenge: str, found: Mapping[str, str]) -> bytes:
        nonce, salt, iterations = found.get("r", ""), _bytes(found.get("s", "")), found.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise UnexpectedAnswer("its answer does not continue the nonce of this client")
        if "m" in found:
            raise UnexpectedAnswer("it demands an extension of SCRAM that this client lacks")
        # RFC 5802 has no number with zeros in front. They would hide the digits behind the tenth.
        if not salt or not _NUMBER.fullmatch(iterations):
            raise UnexpectedAnswer("its answer has no salt, or no number of iterations")
        if not scram.ITERATIONS_MIN <= int(iterations[:10]) <= ITERATIONS_MAX:
            raise UnexpectedAnswer(
                f"it demands {shortened(iterations)} iterations, and this client computes "
                f"{scram.ITERATIONS_MIN} to {ITERATIONS_MAX}"
            )
        algorithm = self._algorithm
        key_of_client, key_of_server = await self._keys_of(salt, int(iterations))
        without_proof = f"c={scram.BINDING},r={nonce}"
        exchanged = f"{self._first},{challenge},{without_proof}"
        stored = scram.stored_key(algorithm, key_of_client)
        proof = scram.xor(key_of_client, scram.signature(algorithm, stored, exchanged))
        self._signature = scram.signature(algorithm, key_of_server, exchanged)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _check_signature(self, text: str) -> None:
        assert self._signature is not None
        if not hmac.compare_digest(_bytes(text), self._signature):
            raise UnexpectedAnswer(
                "its signature is wrong, so it does not know this user's password: it may be "
                "another server than it says"
            )


class OAuthExchange:
    """OAUTHBEARER (RFC 7628): one token. An answer that is not empty says why it is refused."""

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        pairs = {"auth": f"Bearer {token}", **extensions}
        texts = [f"{name}={value}" for name, value in pairs.items()]
        self._token = SEPARATOR.join([scram.NO_BINDING, *texts, "", ""]).encode()
        self._refusal: str | None = None

    def first(self) -> bytes:
        return self._token

    async def respond(self, answer: bytes) -> bytes | None:
        if self._refusal is not None:
            raise UnexpectedAnswer(f"it answered {self._refusal}")
        if not answer:
            return None
        self._refusal = _status(answer)
        return SEPARATOR.encode()  # the broker answers it with an error code and its reason


def _status(answer: bytes) -> str:
    """Return the status in a refusal of OAUTHBEARER."""
    try:
        return shortened(str(json.loads(answer)["status"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return shortened(answer.decode(errors="replace"))


def _bytes(text: str) -> bytes:
    """Return the bytes of a text in base64; none if it is no such text."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
