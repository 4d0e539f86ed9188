"""A broker with a listener of SASL in this process, and clients that authenticate byte by byte."""

import base64
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, Final

from odradek.broker.cluster.users import UserChange
from odradek.broker.config.addresses import Listener
from odradek.broker.security.scram_users import MECHANISM_OF, credential_from
from odradek.protocol import scram
from odradek.protocol.apis.sasl import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.broker.security.secured import Asker, Secured, secured

LISTENER: Final = Listener(name="CLIENTS", host="127.0.0.1", port=9092, protocol="SASL_PLAINTEXT")
PLAIN_USERS: Final = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="alice secret" user_eve="eve secret";'
)
ALL: Final = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
RIGHT: Final = b"\0alice\0alice secret"
WRONG: Final = b"\0alice\0other"
SALT: Final = b"0123456789abcdef"
ITERATIONS: Final = 4096


@asynccontextmanager
async def sasl_broker(
    more: Mapping[str, str] = MappingProxyType({}), *, mechanisms: str = ALL, **listening: Any
) -> AsyncIterator[Secured]:
    """Serve a listener of SASL with the users alice and eve, by PLAIN and by SCRAM.

    `more` has other settings, `listening` the network and the port for brokers.
    """
    async with secured(
        listener=LISTENER,
        **listening,
        more={
            "sasl.enabled.mechanisms": mechanisms,
            "listener.name.clients.plain.sasl.jaas.config": PLAIN_USERS,
            **more,
        },
    ) as broker:
        for name in ("alice", "eve"):
            await add_user(broker, name, f"{name} secret")
        yield broker


async def add_user(broker: Secured, name: str, password: str) -> None:
    for words, mechanism in MECHANISM_OF.items():
        salted = scram.salted_password(scram.ALGORITHMS[words], password, SALT, ITERATIONS)
        credential = credential_from(mechanism, salted, SALT, ITERATIONS)
        await broker.core.users.alter(
            [UserChange(user=name, mechanism=mechanism, credential=credential)]
        )


async def handshake(asker: Asker, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return await asker.ask(SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=mechanism))


async def authenticate(asker: Asker, token: bytes, version: int = 2) -> Any:
    return await asker.ask(SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=token))


def send_frame(asker: Asker, frame: bytes) -> None:
    asker.client.send(struct.pack(">i", len(frame)) + frame)


class ScramClient:
    """The client's side of SCRAM, with faults on request."""

    def __init__(
        self, name: str, password: str, mechanism: str = "SCRAM-SHA-256", acts_for: str = ""
    ) -> None:
        self.algorithm = scram.ALGORITHMS[mechanism]
        self.password = password
        self.header = f"n,{f'a={scram.escaped_name(acts_for)}' if acts_for else ''},"
        self.bare = f"n={scram.escaped_name(name)},r=clientnonce"
        self.salt = ""
        self.nonce = ""

    @property
    def first(self) -> bytes:
        return f"{self.header}{self.bare}".encode()

    def second(self, challenge: bytes, *, nonce: str | None = None, binding: str = "") -> bytes:
        """Return the second message, with another nonce or binding than the right one."""
        text = challenge.decode()
        given = scram.attributes(text)
        self.salt, self.nonce = given["s"], given["r"]
        header = base64.b64encode((binding or self.header).encode()).decode()
        bare = f"c={header},r={given['r'] if nonce is None else nonce}"
        salted = scram.salted_password(
            self.algorithm, self.password, base64.b64decode(given["s"]), int(given["i"])
        )
        key = scram.client_key(self.algorithm, salted)
        self.messages = f"{self.bare},{text},{bare}"
        self.server_key = scram.server_key(self.algorithm, salted)
        signed = scram.signature(
            self.algorithm, scram.stored_key(self.algorithm, key), self.messages
        )
        proof = base64.b64encode(scram.xor(key, signed)).decode()
        return f"{bare},p={proof}".encode()

    @property
    def expected(self) -> bytes:
        """The signature of a server that knows the user."""
        made = scram.signature(self.algorithm, self.server_key, self.messages)
        return b"v=" + base64.b64encode(made)
