"""A history of the members of one consumer group (KIP-848), and the rules that it must obey.

The group's state is a sequence of records in one partition, so each request that was answered took
effect at one moment between its sending and its answer. A request without an answer may take effect
at any later time, or never: it may be on its way for seconds, and a record that was appended may be
replicated later. A coordinator that was deposed may still answer what needs no new record. So no
rule follows from when a member was last heard, and none from an answer that may be an old one. The
rules follow from epochs, and from requests whose acknowledgement needs a record:

- *epoch-back*: the answer to a heartbeat has no older epoch than the heartbeat. A coordinator that
  knows an older epoch of the member refuses it, also one that was deposed. A member that joins for
  the first time needs a record, so its epoch is not older than any that was answered before: the
  epoch of the target assignment never falls, and a member that owns nothing goes there at once.
- *two-owners*: an epoch has one target assignment, and a member in this epoch owns a part of its
  target. What an unfinished coordinator computed for the same epoch was never answered.
- *taken*: a member keeps its epoch until it has reported that it has revoked what it must. So an
  answer with a newer epoch lacks only what the member has reported, or may have: an unanswered
  heartbeat in which a partition was not listed may arrive after the member got this partition. If
  the heartbeat before was not answered, it may have brought the member to the newer epoch, and this
  answer only says what it must revoke there.
- *stale-commit*: when a member was told that it owns a partition in an epoch, no other member owns
  it with an older one, and none will. So a commit of another member with an older epoch, sent
  afterwards, must be refused. A deposed coordinator cannot acknowledge it, as it needs a record.
  Kafka compares epochs only: a member that has revoked a partition, and keeps its epoch because it
  must revoke more, may still store offsets of it. So a member must not send such a commit, and none
  counts that it sent after an unanswered heartbeat without the partition.
- *older-offset*: for the same reason a commit that was acknowledged comes after all acknowledged
  commits of other members with older epochs. What a later owner reads, with its own epoch, has all
  of those before it: a coordinator that knows this epoch knows them. The last read of all has all
  commits that were acknowledged. Other commits have an order only if one was answered before the
  other was sent. One without an answer has none: it may arrive late, while its member still has its
  epoch.
- *phantom-offset*: an offset that is read was sent to be stored, and was not refused.
- *unsettled*: when no broker and no member fails any more, every partition has one owner, and the
  group is stable.

The group is never deleted in a history: that would begin its epochs anew.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final

from tests.checker.anomaly import Anomaly
from tests.checker.history import Partition

JOIN: Final = 0
LEAVE: Final = -1


class Reply(Enum):
    OK = "it took effect"
    REFUSED = "it did not and will not take effect"
    NONE = "unknown: it takes effect now, later or never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A heartbeat of a member. A member waits for each before it sends the next one."""

    member: str
    epoch: int
    """`JOIN`, `LEAVE` or the member's epoch."""
    owned: frozenset[Partition] | None
    """What it reports that it owns; None if it does not say."""
    sent: float
    reply: Reply = Reply.NONE
    answered: float = inf
    given: int = -1
    """The epoch in the answer."""
    assigned: frozenset[Partition] | None = None
    """The partitions in the answer; None if they are those of the answer before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """An offset that a member sent to be stored. All offsets of a history are different."""

    member: str
    epoch: int
    partition: Partition
    offset: int
    sent: float
    reply: Reply = Reply.NONE
    answered: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A stored offset that a member was told, with its id and epoch in the request."""

    member: str
    partition: Partition
    offset: int | None
    sent: float


@dataclass(slots=True, kw_only=True)
class MemberHistory:
    """What the members of one group did, in the order in which they sent it."""

    beats: list[Beat] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    final: Mapping[Partition, int | None] = field(default_factory=dict)
    """What is stored when everything has come to rest."""
    unsettled: str | None = None
    """The reason why the group has not come to rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Owning:
    """A partition that a member was told to own."""

    member: str
    partition: Partition
    epoch: int
    since: int
    """The epoch in which the member got it."""
    told: float


def check_members(history: MemberHistory) -> list[Anomaly]:
    """Return every anomaly of the history. A correct coordinator has none."""
    found: list[Anomaly] = [*_wrong_epochs(history.beats)]
    ownings: list[_Owning] = []
    for member in dict.fromkeys(beat.member for beat in history.beats):
        beats = [beat for beat in history.beats if beat.member == member]
        found += _followed(beats, ownings)
    found += _two_owners(ownings)
    certain = _certain(history)
    found += _stale_commits(certain, ownings)
    found += _wrong_reads(history, certain, ownings)
    if history.unsettled is not None:
        found.append(Anomaly("unsettled", history.unsettled))
    return found


def _wrong_epochs(beats: Sequence[Beat]) -> Iterator[Anomaly]:
    first_sent: dict[str, float] = {}
    for beat in beats:
        first_sent.setdefault(beat.member, beat.sent)
    has_joined: dict[str, None] = {}
    for beat in beats:
        if beat.reply is not Reply.OK or beat.epoch == LEAVE:
            continue
        if beat.given < beat.epoch:
            yield Anomaly("epoch-back", f"{beat.member} came with {beat.epoch}, got {beat.given}")
        if beat.member in has_joined:
            continue
        has_joined[beat.member] = None
        before = max(
            (each.given for each in beats if each.answered < first_sent[beat.member]), default=-1
        )
        if beat.given < before:
            yield Anomaly("epoch-back", f"{beat.member} joined in {beat.given} after {before}")


def _followed(beats: Sequence[Beat], ownings: list[_Owning]) -> Iterator[Anomaly]:
    """Follow what one member owns, into `ownings`. Yield what was taken from it."""
    since: dict[Partition, int] = {}
    """What it owns and has not reported as revoked, and the epoch in which it got that."""
    assigned: frozenset[Partition] = frozenset()
    unanswered: list[frozenset[Partition]] = []
    may_be_ahead = False
    """True if the heartbeat before was not answered: it may have brought a newer epoch."""
    for beat in beats:
        if beat.reply is Reply.NONE:
            may_be_ahead = True
            if beat.owned is not None:
                unanswered.append(beat.owned)
            continue
        was_ahead, may_be_ahead = may_be_ahead, False
        if beat.reply is Reply.REFUSED or beat.epoch == LEAVE:
            since, assigned = {}, frozenset()
            continue
        if beat.owned is not None:
            since = {each: epoch for each, epoch in since.items() if each in beat.owned}
        assigned = assigned if beat.assigned is None else beat.assigned
        if beat.given > beat.epoch and not was_ahead:
            for partition in sorted(since.keys() - assigned):
                del since[partition]
                if all(partition in owned for owned in unanswered):
                    yield Anomaly(
                        "taken",
                        f"{beat.member} got epoch {beat.given} without {partition}, which it has "
                        "not revoked",
                    )
        for partition in sorted(assigned):
            ownings.append(
                _Owning(
                    member=beat.member,
                    partition=partition,
                    epoch=beat.given,
                    since=since.setdefault(partition, beat.given),
                    told=beat.answered,
                )
            )


def _two_owners(ownings: Sequence[_Owning]) -> Iterator[Anomaly]:
    owners: dict[tuple[Partition, int], str] = {}
    for each in ownings:
        owner = owners.setdefault((each.partition, each.epoch), each.member)
        if owner != each.member:
            yield Anomaly(
                "two-owners",
                f"{owner} and {each.member} own {each.partition} in epoch {each.epoch}",
            )


def _certain(history: MemberHistory) -> list[Commit]:
    """Return the acknowledged commits of partitions that their members had not given up."""
    unanswered = [each for each in history.beats if each.reply is Reply.NONE]
    return [
        commit
        for commit in history.commits
        if commit.reply is Reply.OK
        and not any(
            beat.member == commit.member
            and beat.owned is not None
            and commit.partition not in beat.owned
            and beat.sent < commit.sent
            for beat in unanswered
        )
    ]


def _stale_commits(certain: Sequence[Commit], ownings: Sequence[_Owning]) -> Iterator[Anomaly]:
    for commit in certain:
        for owning in ownings:
            if (
                owning.partition == commit.partition
                and owning.member != commit.member
                and owning.epoch > commit.epoch
                and owning.told < commit.sent
            ):
                yield Anomaly(
                    "stale-commit",
                    f"{commit.member} stored an offset of {commit.partition} in epoch "
                    f"{commit.epoch}, and {owning.member} owned it in {owning.epoch}",
                )
                break


def _wrong_reads(
    history: MemberHistory, certain: Sequence[Commit], ownings: Sequence[_Owning]
) -> Iterator[Anomaly]:
    sent = {(each.partition, each.offset): each for each in history.commits}

    def problem(reader: str, where: Partition, offset: int | None, until: float) -> Anomaly | None:
        """Return what is wrong with an offset that has all commits of the epochs before `until`."""
        read = None if offset is None else sent.get((where, offset))
        if offset is not None and (read is None or read.reply is Reply.REFUSED):
            return Anomaly("phantom-offset", f"{reader} read {offset} of {where}")
        for commit in certain:
            is_before = commit.partition == where and commit.epoch < until
            if is_before and commit.member != reader and _is_older(read, commit, certain):
                return Anomaly(
                    "older-offset",
                    f"{reader} read {offset} of {where}, and {commit.member} had stored "
                    f"{commit.offset} in epoch {commit.epoch}",
                )
        return None

    for read in history.reads:
        since = [
            owning.since
            for owning in ownings
            if (owning.member, owning.partition) == (read.member, read.partition)
            and owning.told < read.sent
        ]
        if since and (found := problem(read.member, read.partition, read.offset, since[-1])):
            yield found
    for where, offset in history.final.items():
        if found := problem("the last reader", where, offset, inf):
            yield found


def _is_older(read: Commit | None, commit: Commit, certain: Sequence[Commit]) -> bool:
    """Return True if a commit that was read comes before another one for certain."""
    if read is None:
        return True
    if read is commit or read.reply is not Reply.OK:
        return False
    is_of_earlier_owner = read.member != commit.member and read.epoch < commit.epoch
    return read.answered < commit.sent or (is_of_earlier_owner and read in certain)
