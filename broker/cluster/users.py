"""Users with SCRAM credentials, as a broker changes them in the metadata store.

A change compares the keys that it writes. It is made again from what the store has then if another
broker was quicker. It is answered when this broker's image has it; the other brokers have it as
soon as their watch of the store brings it.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import trio

from odradek.broker.cluster.guarded_write import ABSENT, guarded_write, unchanged_since
from odradek.broker.cluster.metadata import RETRY_SECONDS, ClusterMetadata
from odradek.broker.cluster.unaware_brokers import IGNORES_USERS, check_all_know
from odradek.broker.cluster.user_keys import (
    CLUSTER_SECRET,
    SECRET_BYTES,
    pack_credentials,
    pack_secret,
    read_credentials,
    unknown_credentials,
    user_key,
)
from odradek.broker.environment.env import (
    Compare,
    MetaStore,
    OutcomeUnknown,
    StoreUnreachable,
    Unreadable,
    Versioned,
)
from odradek.broker.security.scram_users import ScramCredential, ScramMechanism, Users
from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError

USERS_MAX: Final = 100_000
"""The number of users that there may be. Every broker keeps them in memory."""
KEYS_AT_ONCE: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class UserChange:
    """A change of one credential of a user. `credential` of None deletes it."""

    user: str
    mechanism: ScramMechanism
    credential: ScramCredential | None = field(repr=False)


class ClusterUsers:
    """The users of the cluster, and the changes that this broker makes."""

    def __init__(self, store: MetaStore, metadata: ClusterMetadata, rng: random.Random) -> None:
        self._store = store
        self._metadata = metadata
        self._rng = rng

    @property
    def users(self) -> Users:
        return self._metadata.newest_image.users

    @property
    def secret(self) -> bytes:
        """The secret of false salts. Raises ProtocolError while this broker cannot know it."""
        secret = self._metadata.newest_image.cluster_secret
        if not secret:
            raise ProtocolError(
                f"{CLUSTER_SECRET} is missing or cannot be read: users of SCRAM cannot authenticate"
            )
        return secret

    def new_nonce(self) -> str:
        return f"{self._rng.getrandbits(160):x}"

    def new_key(self) -> bytes:
        """Return a key that only this process has."""
        return self._rng.getrandbits(8 * SECRET_BYTES).to_bytes(SECRET_BYTES, "big")

    async def make_secret(self) -> None:
        """Make the secret of the cluster, unless there is one. Waits while the store is away."""
        while True:
            try:
                found, _ = await self._store.range(CLUSTER_SECRET)
                if CLUSTER_SECRET in found:
                    return
                await self._store.txn(
                    [Compare(key=CLUSTER_SECRET, mod_revision=ABSENT)],
                    {CLUSTER_SECRET: pack_secret(self.new_key())},
                )
            except (StoreUnreachable, OutcomeUnknown):
                await trio.sleep(RETRY_SECONDS)

    async def alter(self, changes: Sequence[UserChange]) -> dict[str, KafkaError]:
        """Make changes, and return the errors of users whose changes were not made.

        They count on return, on this broker. Raises KafkaError if a broker does not know users.
        Changes are written in parts. If there would be too many users, or the store refuses, the
        users of that part, and of those behind it, have the error.
        """
        check_all_know(self._metadata.image.without_users, IGNORES_USERS)
        errors: dict[str, KafkaError] = {}
        with self._metadata.shielded():
            left = list(changes)
            while left:
                some, rest = left[:KEYS_AT_ONCE], left[KEYS_AT_ONCE:]
                try:
                    await self._alter_some(some, errors)
                except KafkaError as error:
                    for change in left:
                        errors.setdefault(change.user, error)
                    break
                left = rest
        return errors

    async def _alter_some(
        self, changes: Sequence[UserChange], errors: dict[str, KafkaError]
    ) -> None:
        while True:
            found, revision = await self._read(changes)
            puts: dict[str, bytes | None] = {}
            compares = []
            for change in changes:
                key = user_key(change.user)
                stored = found.get(key)
                later: Mapping[str, Any] = {}
                try:
                    before = {} if stored is None else read_credentials(key, stored)
                    later = {} if stored is None else unknown_credentials(key, stored)
                except Unreadable as error:
                    if change.credential is None:
                        before = {change.mechanism: _UNREADABLE}  # it may be deleted
                    else:
                        errors[change.user] = error
                        continue
                if change.credential is None and change.mechanism not in before:
                    errors[change.user] = KafkaError(
                        ErrorCode.RESOURCE_NOT_FOUND,
                        "Attempt to delete a user credential that does not exist",
                    )
                    continue
                after = _with_change(before, change)
                puts[key] = pack_credentials(after, later) if after or later else None
                compares.append(unchanged_since(key, found))
            new = [key for key, value in puts.items() if value and key not in found]
            self._check_number(len(new))
            if puts:
                is_written, at = await guarded_write(self._store, compares, puts)
                revision = max(revision, at)
                if not is_written:
                    continue
            await self._metadata.wait_reached(revision)
            return

    async def _read(self, changes: Sequence[UserChange]) -> tuple[dict[str, Versioned], int]:
        """Return the keys that changes concern, and the revision of the last one read."""
        found: dict[str, Versioned] = {}
        revision = 0
        for change in changes:
            key = user_key(change.user)
            read, revision = await self._store.range(key)  # no key begins another one
            found |= read
        return found, revision

    def _check_number(self, new: int) -> None:
        """Raise KafkaError if `new` users more were too many, by the image of this broker."""
        count = len(self.users)
        if new and count + new > USERS_MAX:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"There are {count} users, and the most are {USERS_MAX}.",
            )


_UNREADABLE: Final = ScramCredential(salt=b"", stored_key=b"", server_key=b"", iterations=0)
"""Stands for what cannot be read of a user that is deleted."""


def _with_change(
    before: Mapping[ScramMechanism, ScramCredential], change: UserChange
) -> dict[ScramMechanism, ScramCredential]:
    after = {each: it for each, it in before.items() if each is not change.mechanism}
    if change.credential is not None:
        after[change.mechanism] = change.credential
    return after
