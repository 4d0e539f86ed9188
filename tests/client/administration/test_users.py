"""Users whose deletion is asked for again, because an answer was lost, or was a refusal."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from odradek.client import Admin, Refused
from odradek.protocol.api import Api
from odradek.protocol.apis.credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from odradek.protocol.errors import ErrorCode
from tests.client.fake_broker import ADDRESS, LOST_AFTER, SERVED, FakeBroker, refused


class Users(FakeBroker):
    """The broker in memory, with users of SCRAM-SHA-256."""

    def __init__(self, nursery: trio.Nursery, *users: str) -> None:
        super().__init__(nursery)
        self.users = set(users)
        self._handlers[ALTER_USER_SCRAM_CREDENTIALS.key] = self._alter

    def served(self) -> tuple[Api[Any, Any], ...]:
        return (*SERVED, ALTER_USER_SCRAM_CREDENTIALS)

    def _alter(
        self, body: AlterUserScramCredentialsRequest, code: ErrorCode
    ) -> AlterUserScramCredentialsResponse:
        (deletion,) = body.deletions
        if code == ErrorCode.NONE and deletion.name not in self.users:
            code = ErrorCode.RESOURCE_NOT_FOUND
        elif code == ErrorCode.NONE:
            self.users.discard(deletion.name)
        result = AlterUserScramCredentialsResult(
            user=deletion.name, error_code=code, error_message=None
        )
        return AlterUserScramCredentialsResponse(results=(result,))


async def test_a_user_that_an_attempt_without_answer_has_deleted_is_deleted(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    broker = Users(nursery, "alice")
    broker.next(ALTER_USER_SCRAM_CREDENTIALS, LOST_AFTER)
    async with Admin(ADDRESS, connect=broker.connect) as admin:
        await admin.delete_user("alice", mechanisms=["SCRAM-SHA-256"])
    assert not broker.users


async def test_a_user_that_was_never_there_is_missing_also_at_a_second_attempt(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """The first attempt was refused, so it has deleted nobody."""
    broker = Users(nursery)
    broker.next(ALTER_USER_SCRAM_CREDENTIALS, refused(ErrorCode.NOT_CONTROLLER))
    async with Admin(ADDRESS, connect=broker.connect) as admin:
        with pytest.raises(Refused) as raised:
            await admin.delete_user("nobody", mechanisms=["SCRAM-SHA-256"])
    assert raised.value.code is ErrorCode.RESOURCE_NOT_FOUND
