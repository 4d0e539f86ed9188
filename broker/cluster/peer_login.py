"""The name and the password by which this broker logs in at the others, as their client.

It is the client's own exchange (`client/cluster/authentication.py`). With SCRAM the other side
shows that it knows the password, too; with PLAIN it does not, and sees the password. A session that
has an end (KIP-368) is renewed while requests go on.
"""

import random
from typing import Final

from odradek.broker.config.sasl_listeners import JAAS, Login
from odradek.broker.config.tls import own_name
from odradek.client.cluster.authentication import Authenticator
from odradek.client.cluster.connection import BrokerConnection
from odradek.client.journal import Journal
from odradek.client.sasl.credentials import Credentials, PlainCredentials, ScramCredentials
from odradek.protocol import scram

TIMEOUT_MS: Final = 3_000
"""The time for each answer of the other broker."""


class PeerLogin:
    """The login of this broker at the listeners of one name."""

    def __init__(self, listener: str, login: Login, *, rng: random.Random) -> None:
        self.principal = login.principal
        self._authenticator = Authenticator(
            _credentials(login),
            rng=rng,
            journal=Journal(f"broker {login.username}"),
            request_timeout_ms=TIMEOUT_MS,
            proof=own_name(listener, f"{login.mechanism.lower()}.{JAAS}"),
        )

    async def log_in(self, connection: BrokerConnection) -> None:
        """Log in at another broker, and renew the session as long as the connection is open.

        Raises `AuthenticationFailed`, and what `BrokerConnection.request` raises.
        """
        exchange = await self._authenticator.begin()
        await self._authenticator.authenticate(connection, exchange)


def _credentials(login: Login) -> Credentials:
    if login.mechanism in scram.ALGORITHMS:
        return ScramCredentials(login.mechanism, login.username, login.password)
    return PlainCredentials(login.username, login.password)
