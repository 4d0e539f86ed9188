"""Users with SCRAM credentials in the metadata store: keys, and values in msgpack.

    /users/NAME/      {MECHANISM: {"salt", "stored", "server", "iterations"}}
    /secrets/cluster  {"secret"}: 32 bytes, of which the salts of users that do not exist are made

NAME is percent-encoded, and a slash ends the key, so that no key begins another one. MECHANISM is
the name by which clients choose it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from odradek.broker.cluster.store import fields_of, pack, reading
from odradek.broker.environment.env import Versioned
from odradek.broker.security.scram_users import (
    MECHANISM_OF,
    NO_USERS,
    ScramCredential,
    ScramMechanism,
    Users,
)

USERS: Final = "/users/"
SECRETS: Final = "/secrets/"
CLUSTER_SECRET: Final = "/secrets/cluster"
SECRET_BYTES: Final = 32

Credentials = Mapping[ScramMechanism, ScramCredential]
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def user_key(name: str) -> str:
    """Return the key of a user's credentials."""
    from urllib.parse import quote

    return f"{USERS}{quote(name, safe='')}/"


def user_of_key(key: str) -> str:
    """Return the user of a key under `/users/`. Raises `Unreadable`."""
    from urllib.parse import unquote

    with reading(key):
        name, end = key.removeprefix(USERS).split("/")
        if end or not name:
            raise ValueError("it is not the key of a user")
        return unquote(name, errors="strict")


def pack_credentials(credentials: Credentials, unknown: Mapping[str, Any] = NOTHING) -> bytes:
    """Return the value of a user. `unknown` has the entries that a later version wrote."""
    return pack(
        {
            **unknown,
            **{
                mechanism.words: {
                    "salt": each.salt,
                    "stored": each.stored_key,
                    "server": each.server_key,
                    "iterations": each.iterations,
                }
                for mechanism, each in credentials.items()
            },
        }
    )


def read_credentials(key: str, stored: Versioned) -> dict[ScramMechanism, ScramCredential]:
    """Return a user's credentials; those of a mechanism of a later version are left out.

    Raises `Unreadable`.
    """
    with reading(key):
        fields: dict[str, Any] = fields_of(stored)
        return {
            MECHANISM_OF[name]: ScramCredential(
                salt=bytes(each["salt"]),
                stored_key=bytes(each["stored"]),
                server_key=bytes(each["server"]),
                iterations=int(each["iterations"]),
            )
            for name, each in fields.items()
            if name in MECHANISM_OF
        }


def unknown_credentials(key: str, stored: Versioned) -> dict[str, Any]:
    """Return the entries of mechanisms of a later version, as they are. Raises `Unreadable`."""
    with reading(key):
        return {name: each for name, each in fields_of(stored).items() if name not in MECHANISM_OF}


def pack_secret(secret: bytes) -> bytes:
    return pack({"secret": secret})


def read_secret(stored: Versioned) -> bytes:
    """Return the secret of the cluster. Raises `Unreadable`."""
    with reading(CLUSTER_SECRET):
        secret = bytes(fields_of(stored)["secret"])
        if len(secret) != SECRET_BYTES:
            raise ValueError("it has another size")
        return secret


class UsersBuilder:
    """The values under `/users/` and `/secrets/`, as images have them."""

    def __init__(self) -> None:
        self._of: dict[str, Credentials] = {}
        self._users: Users | None = NO_USERS
        self.secret = b""

    def put(self, key: str, stored: Versioned | None) -> None:
        """Take over one key; None deletes it. Raises `Unreadable`.

        A user whose value cannot be read does not exist.
        """
        if key == CLUSTER_SECRET:
            self.secret = b"" if stored is None else read_secret(stored)
            return
        if key.startswith(SECRETS):
            return
        name = user_of_key(key)
        self._users = None
        self._of.pop(name, None)
        if stored is not None:
            self._of[name] = read_credentials(key, stored)

    @property
    def users(self) -> Users:
        """All users. It is the same object until one of them changes."""
        if self._users is None:
            self._users = MappingProxyType(dict(self._of))
        return self._users
