"""The requests of a classic group's members that wait for an answer."""

from dataclasses import field
from typing import Final, Generic, TypeVar

import trio

from odradek.late import dataclass
from odradek.protocol.errors import KafkaError

T = TypeVar("T")


@dataclass(slots=True)
class Reply(Generic[T]):
    """An answer that a request waits for."""

    _done: trio.Event = field(default_factory=trio.Event)
    _value: T | None = None
    _error: KafkaError | None = None

    def settle(self, value: T) -> None:
        self._value = value
        self._done.set()

    def fail(self, error: KafkaError) -> None:
        self._error = error
        self._done.set()

    async def wait(self) -> T:
        await self._done.wait()
        if self._error is not None:
            raise self._error
        assert self._value is not None
        return self._value


class WaitingRequests(Generic[T]):
    """The requests of one kind that wait, at most one of each member."""

    def __init__(self) -> None:
        self._replies: Final[dict[str, Reply[T]]] = {}

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._replies

    def members(self) -> list[str]:
        """Return the ids of the members whose requests wait, in the order of the requests."""
        return list(self._replies)

    def add(self, member_id: str, refusal: KafkaError) -> Reply[T]:
        """Return the reply of a new request. One of the member that waits already is refused."""
        # A client sends a request again after it has given up the first one.
        self.refuse(member_id, refusal)
        reply = self._replies[member_id] = Reply[T]()
        return reply

    def answer(self, member_id: str, answer: T) -> None:
        """Answer the request of a member, which waits."""
        self._replies.pop(member_id).settle(answer)

    def refuse(self, member_id: str, refusal: KafkaError) -> None:
        """Refuse the request of a member, if it waits."""
        reply = self._replies.pop(member_id, None)
        if reply is not None:
            reply.fail(refusal)

    def forget(self, member_id: str, reply: object) -> bool:
        """Remove a request without an answer. Return False if another one or none waits."""
        if self._replies.get(member_id) is not reply:
            return False
        del self._replies[member_id]
        return True
