"""The rules of a group find every anomaly that is planted, and nothing in what is legal."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.checker.history import Partition
from tests.checker.members import (
    JOIN,
    LEAVE,
    Beat,
    Commit,
    MemberHistory,
    Read,
    Reply,
    check_members,
)

P: Partition = ("t", 0)
Q: Partition = ("t", 1)


class Story(MemberHistory):
    """A history in which each request takes a second, and is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def beat(
        self,
        member: str,
        epoch: int,
        given: int = -1,
        assigned: set[Partition] | None = None,
        owned: set[Partition] | None = None,
        **changes: Any,
    ) -> None:
        beat = Beat(
            member=member,
            epoch=epoch,
            owned=None if owned is None else frozenset(owned),
            sent=self.now,
            reply=Reply.OK,
            answered=self.now + 0.9,
            given=given,
            assigned=None if assigned is None else frozenset(assigned),
        )
        self.beats.append(replace(beat, **changes))
        self.now += 1

    def commit(
        self, member: str, epoch: int, where: Partition, offset: int, **changes: Any
    ) -> None:
        commit = Commit(
            member=member,
            epoch=epoch,
            partition=where,
            offset=offset,
            sent=self.now,
            reply=Reply.OK,
            answered=self.now + 0.9,
        )
        self.commits.append(replace(commit, **changes))
        self.now += 1

    def read(self, member: str, where: Partition, offset: int | None) -> None:
        self.reads.append(Read(member=member, partition=where, offset=offset, sent=self.now))
        self.now += 1


UNANSWERED: dict[str, Any] = {"reply": Reply.NONE, "answered": float("inf")}


def story() -> Story:
    """Partition Q goes from member a to b, and with b's end back to a."""
    told = Story()
    told.beat("a", JOIN, 2, {P, Q}, set())
    told.commit("a", 2, Q, 1)
    told.beat("b", JOIN, 3, set(), set())
    told.beat("a", 2, 2, {P})
    told.commit("a", 2, Q, 2)
    told.beat("a", 2, 3, {P}, {P})
    told.beat("b", 3, 3, {Q})
    told.read("b", Q, 2)
    told.commit("a", 2, Q, 3, reply=Reply.REFUSED)
    told.commit("b", 3, Q, 4)
    told.commit("b", 3, Q, 5, **UNANSWERED)
    told.beat("b", LEAVE, owned=set())
    told.beat("a", 3, 4, {P, Q})
    told.read("a", Q, 4)
    told.commit("a", 4, P, 6)
    told.final = {P: 6, Q: 5}
    return told


def test_a_legal_history_has_no_anomaly() -> None:
    assert check_members(story()) == []


def unanswered_commit_is_lost(told: Story) -> None:
    told.final = {P: 6, Q: 4}


def late_heartbeat_gives_a_partition_up(told: Story) -> None:
    """The heartbeat that a sent before it had Q again arrives afterwards."""
    told.beat("a", 4, owned={P}, **UNANSWERED)
    told.beat("a", 4, 5, {P}, {P, Q})


def unanswered_heartbeat_reached_the_epoch_of_the_answer(told: Story) -> None:
    """It brought a to epoch 5. The next answer says so, and that Q is to be revoked there."""
    told.beat("a", 4, owned=None, **UNANSWERED)
    told.beat("a", 4, 5, {P}, {P, Q})
    told.beat("a", 5, 6, None, {P})


def member_is_fenced_and_joins_again(told: Story) -> None:
    told.beat("a", 4, reply=Reply.REFUSED)
    told.beat("a", JOIN, 6, {P}, set())


def unanswered_commit_of_an_earlier_owner_comes_late(told: Story) -> None:
    told.commits.insert(0, replace(told.commits[0], offset=9, reply=Reply.NONE))
    told.final = {P: 6, Q: 9}


def older_commit_of_one_member_comes_late(told: Story) -> None:
    """a has had P since epoch 2 (KIP-1251)."""
    told.commit("a", 3, P, 7)
    told.final = {P: 7, Q: 5}


@pytest.mark.parametrize(
    "change",
    [
        unanswered_commit_is_lost,
        unanswered_heartbeat_reached_the_epoch_of_the_answer,
        late_heartbeat_gives_a_partition_up,
        member_is_fenced_and_joins_again,
        older_commit_of_one_member_comes_late,
        unanswered_commit_of_an_earlier_owner_comes_late,
    ],
)
def test_what_is_legal_is_no_anomaly(change: Callable[[Story], None]) -> None:
    told = story()
    change(told)
    assert check_members(told) == []


def answers_an_older_epoch(told: Story) -> None:
    told.beat("a", 5, 4)


def begins_the_epochs_anew(told: Story) -> None:
    told.beat("c", JOIN, 2, set(), set())


def has_another_owner_in_one_epoch(told: Story) -> None:
    told.beat("c", JOIN, 4, {P}, set())


def takes_what_is_not_revoked(told: Story) -> None:
    told.beat("a", 4, 5, {P}, {P, Q})


def takes_without_a_report(told: Story) -> None:
    told.beat("a", 4, 5, {P})


def stores_for_an_earlier_owner(told: Story) -> None:
    told.commit("b", 3, Q, 8)
    told.final = {P: 6, Q: 8}


def loses_what_was_stored(told: Story) -> None:
    told.final = {P: 6, Q: None}


def keeps_what_is_older(told: Story) -> None:
    told.final = {P: 6, Q: 2}


def hands_over_without_the_last_commit(told: Story) -> None:
    told.reads[0] = replace(told.reads[0], offset=1)


def hands_over_nothing(told: Story) -> None:
    told.reads[0] = replace(told.reads[0], offset=None)


def keeps_what_was_refused(told: Story) -> None:
    told.final = {P: 6, Q: 3}


def keeps_what_nobody_stored(told: Story) -> None:
    told.final = {P: 6, Q: 99}


def does_not_come_to_rest(told: Story) -> None:
    told.unsettled = "nobody owns P"


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (answers_an_older_epoch, "epoch-back"),
        (begins_the_epochs_anew, "epoch-back"),
        (has_another_owner_in_one_epoch, "two-owners"),
        (takes_what_is_not_revoked, "taken"),
        (takes_without_a_report, "taken"),
        (stores_for_an_earlier_owner, "stale-commit older-offset"),
        (loses_what_was_stored, "older-offset"),
        (keeps_what_is_older, "older-offset"),
        (hands_over_without_the_last_commit, "older-offset"),
        (hands_over_nothing, "older-offset"),
        (keeps_what_was_refused, "phantom-offset"),
        (keeps_what_nobody_stored, "phantom-offset"),
        (does_not_come_to_rest, "unsettled"),
    ],
)
def test_every_anomaly_is_found(change: Callable[[Story], None], kinds: str) -> None:
    told = story()
    change(told)
    assert {each.kind for each in check_members(told)} == set(kinds.split())
