"""Changes of topics whose answers are lost, and which are asked for again."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from odradek.client import Admin, Refused
from odradek.protocol.api import Api
from odradek.protocol.apis.topics import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from odradek.protocol.errors import ErrorCode
from tests.client.fake_broker import (
    ADDRESS,
    LOST_AFTER,
    LOST_BEFORE,
    SERVED,
    FakeBroker,
)

REMARK = "an earlier attempt of this call has got no answer, and may have done it"


class Topics(FakeBroker):
    """The broker in memory, of which topics may be made and deleted."""

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self._handlers[CREATE_TOPICS.key] = self._create
        self._handlers[DELETE_TOPICS.key] = self._delete

    def served(self) -> tuple[Api[Any, Any], ...]:
        return (*SERVED, CREATE_TOPICS, DELETE_TOPICS)

    def _create(self, body: CreateTopicsRequest, code: ErrorCode) -> CreateTopicsResponse:
        (topic,) = body.topics
        if topic.name in self.topics:
            code = ErrorCode.TOPIC_ALREADY_EXISTS
        self.topics.add(topic.name)
        result = CreatableTopicResult(name=topic.name, error_code=code, error_message=None)
        return CreateTopicsResponse(topics=(result,))

    def _delete(self, body: DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse:
        (topic,) = body.topics
        if topic.name not in self.topics:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self.topics.discard(topic.name or "")
        result = DeletableTopicResult(name=topic.name, error_code=code)
        return DeleteTopicsResponse(responses=(result,))


Change = Callable[[Admin], Awaitable[None]]
CHANGES: dict[str, tuple[Api[Any, Any], Change, Change]] = {
    "create": (
        CREATE_TOPICS,
        lambda admin: admin.create_topic("new"),
        lambda admin: admin.create_topic("t"),
    ),
    "delete": (
        DELETE_TOPICS,
        lambda admin: admin.delete_topics("t"),
        lambda admin: admin.delete_topics("missing"),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_refusal_after_a_lost_answer_says_that_it_may_be_done(
    autojump_clock: MockClock, nursery: trio.Nursery, change: str
) -> None:
    """It said no more than that the topic was there already, or that there was no such topic."""
    api, right, _ = CHANGES[change]
    broker = Topics(nursery)
    broker.next(api, LOST_AFTER)
    async with Admin(ADDRESS, connect=broker.connect) as admin:
        with pytest.raises(Refused, match=REMARK):
            await right(admin)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_down", [False, True])
async def test_a_refusal_of_the_only_attempt_says_nothing_of_others(
    autojump_clock: MockClock, nursery: trio.Nursery, change: str, is_down: bool
) -> None:
    _, _, wrong = CHANGES[change]
    broker = Topics(nursery)
    broker.is_down = is_down
    async with Admin(ADDRESS, connect=broker.connect) as admin:

        async def come_back() -> None:
            await trio.sleep(1)
            broker.is_down = False

        nursery.start_soon(come_back)
        with pytest.raises(Refused) as refused:
            await wrong(admin)
    assert REMARK not in str(refused.value)


@pytest.mark.parametrize("change", CHANGES)
async def test_an_attempt_that_was_lost_is_repeated(
    autojump_clock: MockClock, nursery: trio.Nursery, change: str
) -> None:
    api, right, _ = CHANGES[change]
    broker = Topics(nursery)
    broker.next(api, LOST_BEFORE)
    async with Admin(ADDRESS, connect=broker.connect) as admin:
        await right(admin)
    assert ("new" in broker.topics) is (change == "create")
