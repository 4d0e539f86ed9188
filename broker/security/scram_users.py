"""The SCRAM credentials of users, as the metadata store keeps them and as a client sees them.

There is no password in a credential, and nothing of which a client could make a proof: the stored
key checks a proof, the server key makes the broker's signature.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from itertools import islice
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
SHAPES_MAX: Final = 1_000
"""The users whose credentials false ones resemble. They are looked at again after each change, at
the first message of any stranger: all users could be a hundred thousand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """The credential of a user for one mechanism."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


Users = Mapping[str, Mapping[ScramMechanism, ScramCredential]]
NO_USERS: Final[Users] = MappingProxyType({})


def credential_from(
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


class Shapes:
    """The salts' sizes and alphabets, and the iterations, of the users of one mechanism.

    Clients make salts of their own: Kafka's 25 or 26 letters and digits, others 16 bytes. A false
    credential has the shape of a real one, or it would show that its user does not exist.
    """

    def __init__(self, mechanism: ScramMechanism) -> None:
        self._mechanism = mechanism
        self._users: Users = NO_USERS
        self._shapes: Sequence[_Shape] = _USUAL

    def of_false(self, choice: int, users: Users) -> "_Shape":
        """Return the shape for a user that does not exist. `choice` follows from its name."""
        if users is not self._users:
            found = (each.get(self._mechanism) for each in users.values())
            some = islice((each for each in found if each is not None), SHAPES_MAX)
            self._shapes = [*map(_shape_of, some)] or _USUAL
            self._users = users
        return self._shapes[choice % len(self._shapes)]


@dataclass(frozen=True, slots=True)
class _Shape:
    salt_bytes: int
    alphabet: bytes
    """The bytes that a salt has."""
    iterations: int


_ALL_BYTES: Final = bytes(range(256))
_ALPHABETS: Final = (
    b"0123456789abcdef",
    b"0123456789abcdefghijklmnopqrstuvwxyz",
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
    bytes(range(0x20, 0x7F)),
    _ALL_BYTES,
)
"""From the smallest one on."""
_USUAL: Final = (_Shape(SALT_BYTES, _ALL_BYTES, scram.ITERATIONS_MIN),)


def _shape_of(credential: ScramCredential) -> _Shape:
    salt = credential.salt
    alphabet = next(each for each in _ALPHABETS if not salt.translate(None, each))
    return _Shape(len(salt), alphabet, credential.iterations)


def false_credential(
    mechanism: ScramMechanism, name: str, secret: bytes, shapes: Shapes, users: Users
) -> ScramCredential:
    """Return a credential for a user that does not exist, the same one each time.

    Its salt and its iterations look like those of a user that exists, which follows from the name.
    No password is known that fits.
    """

    def derive(what: str) -> bytes:
        text = f"{what}\0{mechanism.words}\0{name}"
        return hmac.digest(secret, text.encode(errors="replace"), "sha512")

    size = hashlib.new(mechanism.algorithm).digest_size
    shape = shapes.of_false(int.from_bytes(derive("shape")), users)
    stream = hashlib.shake_256(derive("salt")).digest(2 * shape.salt_bytes)
    letters = len(shape.alphabet)
    return ScramCredential(
        salt=bytes(
            shape.alphabet[int.from_bytes(stream[at : at + 2]) % letters]
            for at in range(0, len(stream), 2)
        ),
        stored_key=derive("stored key")[:size],
        server_key=derive("server key")[:size],
        iterations=shape.iterations,
    )
