"""The SCRAM credentials of users, as the metadata store keeps them and as a client sees them.

There is no password in a credential, and nothing of which a client could make a proof: the stored
key checks a proof, the server key makes the broker's signature.
"""

import hashlib
import hmac
from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from odradek.late import dataclass
from odradek.protocol import scram


class ScramMechanism(IntEnum):
    """The mechanisms by the numbers of AlterUserScramCredentials."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def words(self) -> str:
        """The name by which clients choose it."""
        return self.name.replace("_", "-")

    @property
    def algorithm(self) -> str:
        return scram.ALGORITHMS[self.words]


MECHANISM_OF: Final = {each.words: each for each in ScramMechanism if each}
ITERATIONS_MAX: Final = 16_384
"""More make it cheap to keep clients busy. Kafka refuses them, too."""
SALT_BYTES: Final = 16
SALT_MAX_BYTES: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """The credential of a user for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


Users = Mapping[str, Mapping[ScramMechanism, ScramCredential]]
NO_USERS: Final[Users] = MappingProxyType({})


def credential_of(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return what is kept of a salted password."""
    algorithm = mechanism.algorithm
    client_key = scram.client_key(algorithm, salted)
    return ScramCredential(
        salt=salt,
        stored_key=scram.stored_key(algorithm, client_key),
        server_key=scram.server_key(algorithm, salted),
        iterations=iterations,
    )


def false_credential(mechanism: ScramMechanism, name: str, secret: bytes) -> ScramCredential:
    """Return a credential for a user that does not exist, the same one each time.

    Its salt looks like any other. No password is known that fits.
    """

    def derive(what: str) -> bytes:
        text = f"{what}\0{mechanism.words}\0{name}"
        return hmac.digest(secret, text.encode(errors="replace"), "sha512")

    size = hashlib.new(mechanism.algorithm).digest_size
    return ScramCredential(
        salt=derive("salt")[:SALT_BYTES],
        stored_key=derive("stored key")[:size],
        server_key=derive("server key")[:size],
        iterations=scram.ITERATIONS_MIN,
    )
