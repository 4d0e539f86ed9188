"""Users of SCRAM: the part of `Admin` that makes, describes and deletes them."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from odradek.client.administration.attempts import Attempts
from odradek.client.cluster.bounded import bounded
from odradek.client.cluster.cluster import Cluster
from odradek.client.cluster.nursery import ends_where_it_waits
from odradek.client.errors import Retriable
from odradek.client.sasl.credentials import new_salt, salted_password
from odradek.protocol import scram
from odradek.protocol.apis.credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from odradek.protocol.errors import ErrorCode

NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""The mechanisms by their numbers in requests."""
MECHANISMS: Final = tuple(NUMBERS)
NAMES: Final = {number: name for name, number in NUMBERS.items()}


class ScramUser(NamedTuple):
    """A user that authenticates by SCRAM."""

    name: str
    mechanisms: Mapping[str, int]
    """The iterations by mechanism: `{"SCRAM-SHA-512": 4096}`, say."""


@ends_where_it_waits
class UserAdmin:
    """The calls of `Admin` about users of SCRAM."""

    _cluster: Cluster

    @bounded("setting a password")
    async def set_password(
        self,
        user: str,
        password: str,
        *,
        mechanisms: Iterable[str] = MECHANISMS,
        iterations: int = scram.ITERATIONS_MIN,
    ) -> None:
        """Make a user of SCRAM, or change its password, for each of the mechanisms.

        The password itself is not sent. Each mechanism has a request of its own: if the call fails,
        repeat it. Raises `Refused`: the credential cannot be, or the client may not change users.
        """
        if not password:
            raise ValueError("a password is not empty")
        for mechanism in _known(mechanisms):
            salt = new_salt()
            algorithm = scram.ALGORITHMS[mechanism]
            salted = await salted_password(algorithm, password, salt, iterations)
            upsertion = ScramCredentialUpsertion(
                name=user,
                mechanism=NUMBERS[mechanism],
                iterations=iterations,
                salt=salt,
                salted_password=salted,
            )
            request = AlterUserScramCredentialsRequest(deletions=(), upsertions=(upsertion,))
            await _alter(self._cluster, f"setting the password of {user!r}", request)

    @bounded("deleting a user")
    async def delete_user(self, user: str, *, mechanisms: Iterable[str] | None = None) -> None:
        """Delete a user of SCRAM, or its passwords for some mechanisms.

        Connections that are there go on. Raises `Refused`: there is no such user, or the client may
        not change users.
        """
        doing = f"deleting the user {user!r}"
        if mechanisms is None:
            found = await _describe(self._cluster, (user,))
            there = {name for each in found for name in each.mechanisms}
            # Without any, the broker says that there is no such user.
            mechanisms = [name for name in MECHANISMS if name in there] or MECHANISMS[:1]
        for mechanism in _known(mechanisms):
            deletion = ScramCredentialDeletion(name=user, mechanism=NUMBERS[mechanism])
            request = AlterUserScramCredentialsRequest(deletions=(deletion,), upsertions=())
            await _alter(self._cluster, doing, request)

    async def describe_users(self, *users: str) -> list[ScramUser]:
        """Return users of SCRAM by name; without a name all. Those that are not there are left out.

        Raises `Refused`, `TimedOut`.
        """
        return await _describe(self._cluster, users)


def _known(mechanisms: Iterable[str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(mechanisms))
    unknown = [name for name in names if name not in NUMBERS]
    if unknown or not names:
        raise ValueError(f"the mechanisms of SCRAM are {' and '.join(MECHANISMS)}, not {unknown}")
    return names


async def _alter(cluster: Cluster, doing: str, request: AlterUserScramCredentialsRequest) -> None:
    attempts = Attempts(cluster)

    async def attempt() -> None:
        answer = await attempts.ask(None, ALTER_USER_SCRAM_CREDENTIALS, request)
        if not answer.results:
            raise Retriable(f"{doing}: the broker's answer is empty")
        for result in answer.results:
            if attempts.may_be_done and result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                continue  # an earlier attempt, whose answer was lost, has deleted it
            cluster.check(result.error_code, doing, result.error_message)

    await cluster.retrying(doing, attempt)


async def _describe(cluster: Cluster, users: tuple[str, ...]) -> list[ScramUser]:
    names = tuple(UserName(name=name) for name in dict.fromkeys(users))
    request = DescribeUserScramCredentialsRequest(users=names or None)

    async def attempt() -> list[ScramUser]:
        answer = await cluster.ask(None, DESCRIBE_USER_SCRAM_CREDENTIALS, request)
        cluster.check(answer.error_code, "describing users", answer.error_message)
        found = []
        for result in answer.results:
            if result.error_code != ErrorCode.RESOURCE_NOT_FOUND:
                cluster.check(result.error_code, "describing users", result.error_message)
                found.append(_user(result))
        return sorted(found)

    return await cluster.retrying("describing users", attempt)


def _user(result: DescribeUserScramCredentialsResult) -> ScramUser:
    mechanisms = {
        NAMES.get(each.mechanism, str(each.mechanism)): each.iterations
        for each in result.credential_infos
    }
    return ScramUser(result.user, mechanisms)
