"""Users of SCRAM at a broker of tests: they are made by a request, as at any broker."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from odradek.client.blocking.hosted import Blocking, Hosted, blocking
from odradek.client.cluster.cluster import Cluster
from odradek.client.config import ClientConfig
from odradek.client.errors import code_of, error_for
from odradek.protocol import scram
from odradek.protocol.apis.credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.protocol.errors import ErrorCode

NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""The mechanisms, by the numbers of the request."""
SALT_BYTES: Final = 16
ITERATIONS: Final = scram.ITERATIONS_MIN


class _Maker(Blocking[Cluster]):
    """A client that asks the broker to make users."""

    def __init__(self, address: str, options: Mapping[str, Any]) -> None:
        self._hosted = Hosted(lambda: Cluster(address, ClientConfig(**options)))

    ask = blocking(Cluster.ask)


def make_users(
    address: str,
    options: Mapping[str, Any],
    users: Mapping[str, str],
    mechanisms: Sequence[str],
) -> None:
    """Make users with their passwords, for each of the mechanisms, as the client of `options`.

    Raises `OdradekError`.
    """
    with _Maker(address, options) as maker:
        # One mechanism after the other: a request may name a user once.
        for mechanism in mechanisms:
            upsertions = tuple(
                _upsertion(name, password, mechanism) for name, password in users.items()
            )
            request = AlterUserScramCredentialsRequest(deletions=(), upsertions=upsertions)
            answer = maker.ask(None, ALTER_USER_SCRAM_CREDENTIALS, request)
            for result in answer.results:
                if result.error_code != ErrorCode.NONE:
                    doing = f"making the user {result.user!r}"
                    raise error_for(code_of(result.error_code), doing, result.error_message)


def _upsertion(name: str, password: str, mechanism: str) -> ScramCredentialUpsertion:
    salt = os.urandom(SALT_BYTES)
    return ScramCredentialUpsertion(
        name=name,
        mechanism=NUMBERS[mechanism],
        iterations=ITERATIONS,
        salt=salt,
        salted_password=scram.salted_password(
            scram.ALGORITHMS[mechanism], password, salt, ITERATIONS
        ),
    )
