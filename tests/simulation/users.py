"""Users in a simulation: brokers with a second listener, on which clients authenticate by SASL.

The plain listener stays. Its clients are the super user, so that all other clients go on as in a
world without users.
"""

from base64 import b64encode
from functools import cache
from random import Random
from typing import Final

from odradek.broker.config.addresses import SASL_PLAINTEXT, Listener
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.sasl_listeners import SaslOfListener, sasl_of
from odradek.broker.security.principal import ANONYMOUS
from odradek.client.sasl.exchanges import Exchange, Keys, PlainExchange, ScramExchange
from odradek.protocol import scram

LISTENER: Final = "USERS"
PORT: Final = 9094
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PLAIN: Final = "PLAIN"
SCRAM: Final = "SCRAM-SHA-256"
PASSWORD: Final = "of-all"
"""The password of every user."""
OF_PLAIN: Final = ("ann", "bob")
OF_SCRAM: Final = ("carol", "dave")
SESSION_MS: Final = 1000
"""A broker that has lost the metadata store for so long grants nothing."""
SECURED: Final = {
    "authorizer.class.name": AUTHORIZER,
    "super.users": str(ANONYMOUS),
    "broker.session.timeout.ms": str(SESSION_MS),
    "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{LISTENER}:{SASL_PLAINTEXT}",
    "sasl.enabled.mechanisms": f"{PLAIN},{SCRAM}",
    f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        + " ".join(f'user_{name}="{PASSWORD}"' for name in OF_PLAIN)
        + ";"
    ),
}
"""The settings of brokers that have users."""
SALT: Final = bytes(range(16))


def listener_of_users(config: BrokerConfig, host: str) -> tuple[Listener, ...]:
    """Return the listener on which clients authenticate; none in a world without users."""
    if f"{LISTENER}:" not in config.listener_security_protocol_map:
        return ()
    return (Listener(name=LISTENER, host=host, port=PORT, protocol=SASL_PLAINTEXT),)


def sasl_of_users(config: BrokerConfig) -> SaslOfListener:
    def read(path: str) -> str:
        raise FileNotFoundError(path)

    return sasl_of(config, LISTENER, read)


@cache
def salted_password() -> bytes:
    """Return what a credential of SCRAM is made of: it is the same for all users."""
    return scram.salted_password(scram.ALGORITHMS[SCRAM], PASSWORD, SALT, scram.ITERATIONS_MIN)


async def _keys(salt: bytes, iterations: int) -> Keys:
    """Return the keys of the password. An unknown user has another salt, and any keys do."""
    algorithm, salted = scram.ALGORITHMS[SCRAM], salted_password()
    return scram.client_key(algorithm, salted), scram.server_key(algorithm, salted)


def mechanism_of(user: str) -> str:
    return PLAIN if user in OF_PLAIN else SCRAM


def exchange_of(user: str, rng: Random) -> Exchange:
    """Return the client's half of an authentication."""
    if user in OF_PLAIN:
        return PlainExchange(user, PASSWORD)
    nonce = b64encode(rng.randbytes(12)).decode()
    return ScramExchange(scram.ALGORITHMS[SCRAM], user, nonce, _keys)
