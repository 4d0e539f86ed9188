"""The raw members of `scripts/bench --rows membership`: what they send next; nothing is timed."""

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from odradek.protocol.apis.group import JoinGroupResponse, JoinGroupResponseMember
from odradek.protocol.apis.group_consumer import (
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from odradek.protocol.consumer_protocol import decode_assignment
from odradek.protocol.errors import ErrorCode
from scripts.benchmarks.wire_members import ClassicMember, ConsumerMember, is_stable

TOPIC_ID = UUID(int=5)


def owner(*indexes: int, epoch: int = 3) -> Any:
    return SimpleNamespace(owned=frozenset(("t", index) for index in indexes), epoch=epoch)


@pytest.mark.parametrize(
    ("members", "is_so"),
    [
        ([owner(0, 1), owner(2, 3)], True),
        ([owner(0, 1), owner(2)], False),  # of four partitions
        ([owner(0, 1), owner(1, 2)], False),
        ([owner(0, 1, 2), owner(3)], False),
        ([owner(0, 1), owner(2, 3, epoch=4)], False),
        ([owner(0, 1, epoch=-1), owner(2, 3, epoch=-1)], False),
    ],
)
def test_members_are_stable_with_even_shares_of_all_partitions_in_one_epoch(
    members: list[Any], is_so: bool
) -> None:
    assert is_stable(members, 4) is is_so


class FakeLink:
    """A link that keeps what is asked, and answers what a test says."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.is_closed = False
        self._then: Callable[[Any], None] = lambda _: None

    def ask(self, api: Any, version: int, message: Any, then: Callable[[Any], None]) -> None:
        self.asked.append((api.name, message))
        self._then = then

    def answer(self, answer: Any) -> None:
        self._then(answer)

    def close(self) -> None:
        self.is_closed = True


class FakeLoop:
    def __init__(self) -> None:
        self.later: list[Callable[[], None]] = []

    def at(self, moment: float, action: Callable[[], None]) -> None:
        self.later.append(action)


def joined(member_id: str, leader: str, *others: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=0,
        generation_id=7,
        protocol_name="bench",
        leader=leader,
        member_id=member_id,
        members=tuple(
            JoinGroupResponseMember(member_id=each, metadata=b"") for each in (member_id, *others)
        ),
    )


def classic(link: Any, loop: Any) -> ClassicMember:
    return ClassicMember(link, loop, "g", "t", 5, session_ms=6_000, random=Random(1))


def test_the_leader_divides_all_partitions_and_a_rebalance_lets_it_join_again() -> None:
    link, loop = FakeLink(), FakeLoop()
    member = classic(link, loop)
    member.join()
    link.answer(
        JoinGroupResponse(
            error_code=ErrorCode.MEMBER_ID_REQUIRED,
            protocol_name=None,
            leader="",
            member_id="a",
            members=(),
        )
    )
    assert link.asked[-1][1].member_id == "a"
    link.answer(joined("a", "a", "b"))
    name, sync = link.asked[-1]
    shares = {each.member_id: decode_assignment(each.assignment) for each in sync.assignments}
    indexes = {
        member_id: share.assigned_partitions[0].partitions for member_id, share in shares.items()
    }
    assert (name, indexes) == ("SyncGroup", {"a": (0, 2, 4), "b": (1, 3)})
    link.answer(SimpleNamespace(error_code=0, assignment=sync.assignments[0].assignment))
    assert (member.epoch, len(member.owned)) == (7, 3)
    loop.later.pop()()
    assert link.asked[-1][0] == "Heartbeat"
    link.answer(SimpleNamespace(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    assert (link.asked[-1][0], member.epoch) == ("JoinGroup", -1)


def test_a_member_that_is_no_leader_sends_no_assignment() -> None:
    link = FakeLink()
    member = classic(link, FakeLoop())
    member.join()
    link.answer(joined("a", "b"))
    assert link.asked[-1][1].assignments == ()


def test_a_member_of_the_new_protocol_confirms_an_assignment_at_once() -> None:
    link, loop = FakeLink(), FakeLoop()
    member = ConsumerMember(link, loop, "g", "t", random=Random(1))  # type: ignore[arg-type]
    member.join()
    assert link.asked[-1][1].topic_partitions == ()
    share = ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=TOPIC_ID, partitions=(2, 1))
    assignment = ConsumerGroupHeartbeatResponseAssignment(topic_partitions=(share,))
    link.answer(
        ConsumerGroupHeartbeatResponse(
            error_code=0, member_epoch=4, heartbeat_interval_ms=5_000, assignment=assignment
        )
    )
    confirmed = link.asked[-1][1]
    assert (confirmed.member_epoch, confirmed.topic_partitions[0].partitions) == (4, (1, 2))
    link.answer(
        ConsumerGroupHeartbeatResponse(
            error_code=0, member_epoch=4, heartbeat_interval_ms=5_000, assignment=None
        )
    )
    asked_before = len(link.asked)
    loop.later.pop()()
    assert len(link.asked) == asked_before + 1
    assert link.asked[-1][1].topic_partitions is None


def test_a_member_whose_connection_is_closed_sends_nothing_more() -> None:
    link, loop = FakeLink(), FakeLoop()
    member = ConsumerMember(link, loop, "g", "t", random=Random(1))  # type: ignore[arg-type]
    member.join()
    link.answer(
        ConsumerGroupHeartbeatResponse(
            error_code=0, member_epoch=1, heartbeat_interval_ms=5_000, assignment=None
        )
    )
    member.die()
    loop.later.pop()()
    assert len(link.asked) == 1


def test_a_refusal_ends_the_benchmark() -> None:
    link = FakeLink()
    member = classic(link, FakeLoop())
    member.join()
    with pytest.raises(RuntimeError, match="GROUP_MAX_SIZE_REACHED"):
        link.answer(SimpleNamespace(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED))
