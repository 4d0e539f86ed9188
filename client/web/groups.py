"""The section of groups: members, lag over time, and rebalances with what has changed."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from odradek.client.administration.admin import Admin, OffsetSpec
from odradek.client.administration.group_descriptions import (
    GroupDescription,
    GroupLag,
    GroupMemberDescription,
)
from odradek.client.config import system_wall_ms
from odradek.client.errors import Refused, Retriable
from odradek.client.types import TopicPartition
from odradek.client.web.board import Board
from odradek.client.web.lags import LagHistory, LagSample
from odradek.client.web.lanes import KEPT_MS
from odradek.client.web.poller import PageSource
from odradek.client.wording import client, counted
from odradek.protocol.text import printable

GROUPS_MAX: Final = 100
"""The groups that are followed, in the order of their names."""
PARTITIONS_SHOWN: Final = 50
MEMBERS_SHOWN: Final = 50
EVENTS_MAX: Final = 500
Stable = Mapping[TopicPartition, int]


class GroupSource(PageSource):
    section = "groups"
    every_s = 5.0

    def __init__(self) -> None:
        self._histories: dict[str, LagHistory] = {}
        self._described: dict[str, GroupDescription] = {}
        self._events: deque[tuple[int, int]] = deque()
        """The numbers and times of the rebalances on the board."""
        self._number = 0

    async def look(self, admin: Admin, board: Board) -> str | None:
        names = [listing.group_id for listing in await admin.list_groups()]
        followed = names[:GROUPS_MAX]
        answers = await admin.describe_groups(*followed)
        for answer in answers.values():
            if isinstance(answer, Retriable):  # a broker is away, and the group is not
                raise answer
        described = {
            name: found for name, found in answers.items() if isinstance(found, GroupDescription)
        }
        lags: dict[str, Mapping[TopicPartition, GroupLag]] = {}
        refused = [found for found in answers.values() if isinstance(found, Refused)]
        for name in described:
            try:
                lags[name] = await admin.group_lag(name)
            except Refused as error:  # not the right to see its offsets, or it has gone
                refused.append(error)
        stable = await _stable_offsets(admin, lags.values())
        self._show(board, described, lags, stable, system_wall_ms())
        board.put("groups", "", {"count": len(names), "followed": len(followed)})
        return str(refused[0]) if refused else None

    def _show(
        self,
        board: Board,
        described: Mapping[str, GroupDescription],
        lags: Mapping[str, Mapping[TopicPartition, GroupLag]],
        stable: Stable,
        now_ms: int,
    ) -> None:
        self._histories = {
            name: self._histories.get(name, LagHistory()) for name in described if name in lags
        }
        for name, history in self._histories.items():
            history.add(_sample(lags[name], stable, now_ms))
        board.replace(
            "group",
            {
                name: _facts(found, lags.get(name, {}), stable, self._histories.get(name))
                for name, found in described.items()
            },
        )
        board.replace(
            "lag",
            {
                f"{begin_ms} {name}": samples
                for name, history in self._histories.items()
                for begin_ms, samples in history.buckets().items()
            },
        )
        for name, found in described.items():
            before = self._described.get(name)
            text = None if before is None else rebalance(before, found)
            if text is not None:
                self._add_event(board, name, text, now_ms)
        self._described = dict(described)
        self._forget_events(board, now_ms - KEPT_MS)

    def _forget_events(self, board: Board, before_ms: int) -> None:
        while self._events and (len(self._events) > EVENTS_MAX or self._events[0][1] < before_ms):
            board.remove("group_event", str(self._events.popleft()[0]))

    def _add_event(self, board: Board, name: str, text: str, now_ms: int) -> None:
        self._number += 1
        self._events.append((self._number, now_ms))
        board.put(
            "group_event",
            str(self._number),
            {"name": printable(name), "at_ms": now_ms, "text": text},
        )


async def _stable_offsets(
    admin: Admin, lags: Iterable[Mapping[TopicPartition, GroupLag]]
) -> Stable:
    """Return the last stable offsets of the partitions whose ends are known."""
    wanted: dict[TopicPartition, OffsetSpec] = {
        name: "latest" for each in lags for name, lag in each.items() if lag.end_offset is not None
    }
    try:
        found = await admin.list_offsets(wanted) if wanted else {}
    except Refused:  # a topic was deleted meanwhile: nothing is known to wait
        return {}
    return {name: each.offset for name, each in found.items()}


def _pinned(name: TopicPartition, lag: GroupLag, stable: Stable) -> int:
    """Return the part of a lag that committed readers cannot get yet."""
    if lag.offset is None or lag.end_offset is None or name not in stable:
        return 0
    return max(lag.end_offset - max(lag.offset, stable[name]), 0)


def _sample(lags: Mapping[TopicPartition, GroupLag], stable: Stable, now_ms: int) -> LagSample:
    known = {name: lag for name, lag in lags.items() if lag.lag is not None}
    return LagSample(
        now_ms,
        sum(lag.lag or 0 for lag in known.values()),
        sum(_pinned(name, lag, stable) for name, lag in known.items()),
        sum(lag.end_offset or 0 for lag in known.values()),
    )


def _facts(
    found: GroupDescription,
    lags: Mapping[TopicPartition, GroupLag],
    stable: Stable,
    history: LagHistory | None,
) -> dict[str, object]:
    rows = sorted(lags.items(), key=lambda item: -(item[1].lag or 0))
    return {
        "name": printable(found.group_id),
        "state": found.state,
        "type": found.group_type,
        "assignor": found.protocol,
        "coordinator": found.coordinator_id,
        "epoch": found.group_epoch,
        "member_count": len(found.members),
        "members": [
            [_who(member), len(member.partitions)] for member in found.members[:MEMBERS_SHOWN]
        ],
        "behind_ms": None if history is None else history.behind_ms(),
        "partition_count": len(lags),
        "partitions": [
            [
                printable(name.topic),
                name.partition,
                lag.offset,
                stable.get(name),
                lag.end_offset,
                lag.lag,
            ]
            for name, lag in rows[:PARTITIONS_SHOWN]
        ],
    }


def _who(member: GroupMemberDescription) -> str:
    who = client(member.client_id or None, member.client_host or None)
    return who or printable(member.member_id)


def rebalance(before: GroupDescription, after: GroupDescription) -> str | None:
    """Return what has made a group rebalance between two looks; None if it has not.

    Brokers return no cause, so it is concluded from the members.
    """
    parts = list(_changed_members(before, after))
    epochs = (after.group_epoch or 0) - (before.group_epoch or 0)
    if not parts and epochs > 0:
        parts = ["its topics or the subscriptions of its members have changed"]
    if not parts and _assigned(before) != _assigned(after):
        parts = ["its partitions have moved"]
    if before.state != after.state:
        parts.append(f"it is {after.state} and was {before.state}")
    return "; ".join(parts) or None


def _changed_members(before: GroupDescription, after: GroupDescription) -> Iterator[str]:
    old = {member.member_id: member for member in before.members}
    new = {member.member_id: member for member in after.members}
    for verb, found in (
        ("joined", [new[name] for name in new if name not in old]),
        ("left", [old[name] for name in old if name not in new]),
    ):
        if len(found) == 1:
            yield f"{_who(found[0])} {verb}"
        elif found:
            yield f"{counted(len(found), 'member')} {verb}, {_who(found[0])} among them"


def _assigned(found: GroupDescription) -> dict[str, tuple[TopicPartition, ...]]:
    return {member.member_id: member.partitions for member in found.members}
