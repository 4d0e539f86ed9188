"""The mechanism PLAIN (RFC 4616): the client sends its name and its password.

The users are given in the configuration, with their passwords, or in a file that has only what
scrypt makes of a password. If there is such a file, each attempt costs one scrypt, whoever it is
for: the time does not tell who exists.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Final

from odradek.broker.security.mechanism import Answer, Costly, Rejection, ServerExchange, Success
from odradek.broker.security.principal import USER, Principal
from odradek.broker.security.remembered_passwords import RememberedPasswords
from odradek.late import dataclass

TOKENS: Final = 3
PARTS_MAX: Final = 4
"""The number of parts of a token that are looked for, as in Kafka."""
WRONG: Final = "Authentication failed: Invalid username or password"
OTHER_NAME: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)
SCRYPT: Final = "$scrypt$"
COST: Final = 15
"""The logarithm of scrypt's N in new hashes: 32 MiB, and a tenth of a second."""
COST_MAX: Final = 18
BLOCKS: Final = 8
HASH_SALT_BYTES: Final = 16
HASH_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordHash:
    """The scrypt of a password, with its parameters."""

    cost: int
    salt: bytes = field(repr=False)
    hash: bytes = field(repr=False)

    def is_of(self, password: str, cost: int = 0) -> bool:
        """Return True if it is that of a password. It takes as long as a hash of `cost` at least.

        A hash takes twice as long as one whose cost is less by one.
        """
        for each in range(self.cost, cost):
            _scrypt(password, each, self.salt)
        return hmac.compare_digest(_scrypt(password, self.cost, self.salt), self.hash)

    def __str__(self) -> str:
        salt, made = (b64encode(each).decode() for each in (self.salt, self.hash))
        return f"{SCRYPT}ln={self.cost},r={BLOCKS},p=1${salt}${made}"


NO_HASH: Final = PasswordHash(cost=COST, salt=bytes(HASH_SALT_BYTES), hash=bytes(HASH_BYTES))
"""The hash of a user that does not exist. No password is known that has it."""


def hash_password(password: str, salt: bytes) -> PasswordHash:
    """Return the hash to keep of a password. It takes long."""
    return PasswordHash(cost=COST, salt=salt, hash=_scrypt(password, COST, salt))


def parse_hash(text: str) -> PasswordHash:
    """Return the hash that `str` has written. Raises ValueError, without a part of it."""
    try:
        nothing, kind, parameters, salt, made = text.split("$")
        names = dict(each.split("=") for each in parameters.split(","))
        found = PasswordHash(
            cost=int(names["ln"]),
            salt=b64decode(salt, validate=True),
            hash=b64decode(made, validate=True),
        )
    except (KeyError, Error, ValueError):
        raise ValueError("it is no hash that odradek user hash prints") from None
    is_ours = (nothing, kind, names.get("r"), names.get("p")) == ("", "scrypt", str(BLOCKS), "1")
    if not is_ours or not 1 <= found.cost <= COST_MAX or len(found.hash) != HASH_BYTES:
        raise ValueError("its parameters are none that this broker uses")
    return found


def _scrypt(password: str, cost: int, salt: bytes) -> bytes:
    return hashlib.scrypt(
        password.encode(),
        salt=salt,
        n=1 << cost,
        r=BLOCKS,
        p=1,
        maxmem=(2 * 128 * BLOCKS << cost) + 65_536,
        dklen=HASH_BYTES,
    )


class Plain:
    """The users of PLAIN of one listener."""

    name: Final = "PLAIN"

    def __init__(
        self,
        passwords: Mapping[str, str],
        hashes: Mapping[str, PasswordHash] | None = None,
        *,
        key: bytes,
    ) -> None:
        """`hashes` is None if there is no file with hashes. `key` is a secret of the process."""
        self._passwords = passwords
        self._remembered = RememberedPasswords(key)
        self.use(hashes)

    def use(self, hashes: Mapping[str, PasswordHash] | None) -> None:
        """Use other hashes from now on: the file has changed."""
        self._hashes = hashes
        self.cost = max((each.cost for each in (hashes or {}).values()), default=COST)
        """Each attempt takes as long as one for the most costly hash."""
        self._nobody = replace(NO_HASH, cost=self.cost)

    def _is_kept(self, name: str, kept: PasswordHash) -> bool:
        """Return True if the file has this hash of a user still."""
        # plant a password of before the file has changed is still right
        return self._hashes is not None and self._hashes.get(name) == kept

    def begin(self) -> ServerExchange:
        return _PlainExchange(self)

    def check(self, name: str, password: str, acts_for: str) -> Answer:
        """Return the result for a name and a password, or the function that finds it."""
        is_right = _is_same(self._passwords.get(name, ""), password) and name in self._passwords
        if self._hashes is None:
            return _plain_result(name, acts_for, is_right)
        kept, cost = self._hashes.get(name, self._nobody), self.cost

        # A password waits for its turn. If the file changes meanwhile, the old hash opens nothing.
        def compare() -> Success | Rejection:
            is_same = kept.is_of(password, cost) and self._is_kept(name, kept)
            return _plain_result(name, acts_for, is_same or is_right)

        def known() -> Success | Rejection | None:
            is_known = self._is_kept(name, kept) and self._remembered.has(name, password, str(kept))
            return _plain_result(name, acts_for, is_right=True) if is_known else None

        def note(result: Success | Rejection) -> None:
            if isinstance(result, Success):
                self._remembered.add(name, password, str(kept))

        return Costly(compare, known, note)


class _PlainExchange:
    """One token of a client, and its answer."""

    def __init__(self, users: Plain) -> None:
        self._users = users

    def answer(self, token: bytes) -> Answer:
        tokens = token.decode(errors="replace").split("\0", PARTS_MAX - 1)
        if len(tokens) != TOKENS:
            words = f"Invalid SASL/PLAIN response: expected {TOKENS} tokens, got {len(tokens)}"
            return Rejection(words=words, cause="its token is not one of PLAIN")
        acts_for, name, password = tokens
        if not name:
            return _failed("username not specified")
        if not password:
            return _failed("password not specified")
        return self._users.check(name, password, acts_for)


def _plain_result(name: str, acts_for: str, is_right: bool) -> Success | Rejection:
    if not is_right:
        return Rejection(words=WRONG, cause=f"wrong user {name!r} or password")
    # invariant authentication 1: A client acts for the user whose password it has shown.
    # plant the name to act for is ignored in PLAIN
    if acts_for not in ("", name):
        return Rejection(words=OTHER_NAME, cause=f"{name!r} would act for another user")
    return Success(principal=Principal(USER, name))


def _failed(what: str) -> Rejection:
    return Rejection(words=f"Authentication failed: {what}", cause=what)


def _is_same(some: str, other: str) -> bool:
    """Compare two passwords in a time that does not tell where they differ."""
    first, second = (hashlib.sha256(each.encode()).digest() for each in (some, other))
    return hmac.compare_digest(first, second)
