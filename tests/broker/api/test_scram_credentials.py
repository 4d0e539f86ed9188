"""Users of SCRAM are made, described and deleted by requests, with Kafka's codes and words."""

from typing import Any, Final

import pytest

from odradek.protocol import scram
from odradek.protocol.apis.credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.security.secured import Asker, secured
from tests.broker.server.authenticating import (
    RIGHT,
    ScramClient,
    authenticate,
    handshake,
    sasl_broker,
)

E: Final = ErrorCode
SALT: Final = b"salt of sixteen "


def upsertion(name: str, password: str = "secret", **other: Any) -> ScramCredentialUpsertion:
    values: dict[str, Any] = {"mechanism": 1, "iterations": 4096, "salt": SALT, **other}
    algorithm = {1: "sha256", 2: "sha512"}.get(values["mechanism"], "sha256")
    salted = scram.salted_password(algorithm, password, SALT, 4096)
    return ScramCredentialUpsertion(name=name, **{"salted_password": salted, **values})


async def alter(asker: Asker, *wanted: Any) -> list[tuple[str, int, str | None]]:
    deletions = tuple(each for each in wanted if isinstance(each, ScramCredentialDeletion))
    upsertions = tuple(each for each in wanted if isinstance(each, ScramCredentialUpsertion))
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
    answer = await asker.ask(ALTER_USER_SCRAM_CREDENTIALS, 0, request)
    return [(each.user, each.error_code, each.error_message) for each in answer.results]


async def described(asker: Asker, *names: str) -> dict[str, Any]:
    users = tuple(UserName(name=name) for name in names) or None
    request = DescribeUserScramCredentialsRequest(users=users)
    answer = await asker.ask(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, request)
    assert answer.error_code == 0
    return {
        each.user: each.error_code
        or [(info.mechanism, info.iterations) for info in each.credential_infos]
        for each in answer.results
    }


async def test_a_user_is_made_described_and_deleted() -> None:
    async with secured() as broker:
        asker = broker.connect()
        assert await alter(asker, upsertion("alice")) == [("alice", 0, None)]
        assert await alter(asker, upsertion("alice", mechanism=2, iterations=8192)) == [
            ("alice", 0, None)
        ]
        assert await described(asker) == {"alice": [(1, 4096), (2, 8192)]}
        assert await described(asker, "alice", "bob") == {
            "alice": [(1, 4096), (2, 8192)],
            "bob": E.RESOURCE_NOT_FOUND,
        }
        await alter(asker, ScramCredentialDeletion(name="alice", mechanism=1))
        assert await described(asker) == {"alice": [(2, 8192)]}
        await alter(asker, ScramCredentialDeletion(name="alice", mechanism=2))
        assert await described(asker) == {}
        assert await alter(asker, ScramCredentialDeletion(name="alice", mechanism=2)) == [
            (
                "alice",
                E.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        ]


@pytest.mark.parametrize(
    ("wanted", "code", "words"),
    [
        (upsertion(""), E.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsertion("a", iterations=4095), E.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion("a", iterations=16385), E.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (upsertion("a", mechanism=3), E.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion("a", mechanism=0), E.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (
            upsertion("a", salted_password=b"short"),
            E.UNACCEPTABLE_CREDENTIAL,
            "The salt or the salted password has another size",
        ),
    ],
)
async def test_a_credential_that_cannot_be_is_refused(
    wanted: Any, code: ErrorCode, words: str
) -> None:
    async with secured() as broker:
        asker = broker.connect()
        answer = await alter(asker, wanted, upsertion("bob"))
        assert answer == [(wanted.name, code, words), ("bob", 0, None)]
        assert await described(asker) == {"bob": [(1, 4096)]}


async def test_a_user_that_is_named_twice_is_not_changed() -> None:
    async with secured() as broker:
        asker = broker.connect()
        assert await alter(asker, upsertion("a"), upsertion("a", mechanism=2)) == [
            (
                "a",
                E.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            )
        ]
        assert await described(asker) == {}


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ((upsertion("a", iterations=1), upsertion("a")), E.UNACCEPTABLE_CREDENTIAL),
        ((upsertion("a"), upsertion("a", iterations=1)), E.DUPLICATE_RESOURCE),
        ((upsertion("a"), upsertion("a"), upsertion("a")), E.DUPLICATE_RESOURCE),
        (
            (ScramCredentialDeletion(name="a", mechanism=0), upsertion("a")),
            E.UNSUPPORTED_SASL_MECHANISM,
        ),
    ],
)
async def test_the_first_error_of_a_user_is_returned(
    wanted: tuple[Any, ...], code: ErrorCode
) -> None:
    async with secured() as broker:
        asker = broker.connect()
        ((user, found, _),) = await alter(asker, *wanted)
        assert (user, found) == ("a", code)
        assert await described(asker) == {}


async def test_a_user_that_was_made_authenticates_until_it_is_deleted(
    autojump_clock: object,
) -> None:
    async with sasl_broker() as broker:
        admin = broker.connect()
        await handshake(admin)
        await authenticate(admin, RIGHT)
        await alter(admin, upsertion("new, =user", "secret"))
        for code in (0, E.SASL_AUTHENTICATION_FAILED):
            asker = broker.connect()
            await handshake(asker, "SCRAM-SHA-256")
            client = ScramClient("new, =user", "secret")
            challenge = await authenticate(asker, client.first)
            answer = await authenticate(asker, client.second(challenge.auth_bytes))
            assert answer.error_code == code
            await alter(admin, ScramCredentialDeletion(name="new, =user", mechanism=1))
