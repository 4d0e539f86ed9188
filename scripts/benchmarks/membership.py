"""Membership of consumer groups, classic and of the new protocol (KIP-848), by raw members.

- *all join*: 50 members join at the same time. From the last one's first request until all own
  their share of the partitions in one epoch.
- *one more joins*: 49 members are stable and the 50th joins. A member learns of it at its next
  heartbeat, so the interval (3 s classic, 5 s new) is most of the time.
- *one is killed*: the connection of one of 50 closes without a goodbye. From there until the others
  own its partitions, less the session timeout, with heartbeats every half second.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Final

from scripts.benchmarks.crowd_loop import Link, Loop
from scripts.benchmarks.figures import Figure, at_most_of_theirs, below
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.many import Where
from scripts.benchmarks.raw_producer import GROUP, find_coordinator
from scripts.benchmarks.targets import Target, wait_until_serving
from scripts.benchmarks.wire_members import (
    CLASSIC_HEARTBEAT_SECONDS,
    ClassicMember,
    ConsumerMember,
    Member,
    is_stable,
)
from tests.broker.raw import RawClient

FAMILY: Final = "membership"
MEMBERS: Final = 50
PARTITIONS: Final = 200
ROUNDS: Final = 3
QUICK_ROUNDS: Final = 1
SETTLE_SECONDS: Final = 3.0
DEFAULT_SESSION_MS: Final = 45_000
SESSION_MS: Final = 6_000
HEARTBEAT_MS: Final = 500
SHORT_SESSIONS: Final = {
    "group.consumer.min.session.timeout.ms": f"{SESSION_MS}",
    "group.consumer.session.timeout.ms": f"{SESSION_MS}",
    "group.consumer.min.heartbeat.interval.ms": f"{HEARTBEAT_MS}",
    "group.consumer.heartbeat.interval.ms": f"{HEARTBEAT_MS}",
}
MOST_OF_THEIRS: Final = 1.2
LATE_MAX_SECONDS: Final = 1.0

NewMember = Callable[["Groups", str, str], Member]


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    rounds = QUICK_ROUNDS if quick else ROUNDS
    with target.running() as address:
        for protocol, new_member in PROTOCOLS.items():
            groups = Groups(address)
            all_join(groups, new_member)  # does not count: a new broker loads its topic
            joins = [_joins(groups, new_member) for _ in range(rounds)]
            for what, found in zip(
                ("all join", "one more joins"), zip(*joins, strict=True), strict=True
            ):
                yield Figure(
                    family=FAMILY,
                    name=f"{MEMBERS} members, {protocol}: {what}",
                    value=statistics.median(found),
                    unit="s",
                    floor=at_most_of_theirs(MOST_OF_THEIRS),
                )
    if target.new_process is None:
        return
    for protocol, new_member in QUICK_PROTOCOLS.items():
        with started(target, SHORT_SESSIONS) as (address, _):
            late = [_killed(Groups(address), new_member) for _ in range(1 if quick else 3)]
        yield Figure(
            family=FAMILY,
            name=f"{MEMBERS} members, {protocol}: one is killed, after its session",
            value=max(late),
            unit="s",
            floor=below(LATE_MAX_SECONDS),
        )


@contextmanager
def started(target: Target, settings: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    assert target.new_process is not None
    with target.new_process(settings) as process:
        process.launch()
        wait_until_serving(process)
        yield f"{process.host}:{process.port}", process.pid


class Groups:
    """A loop, and the links to one broker."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.loop = Loop()
        self.random = Random(1)
        self.links: list[Link] = []
        host, _, port = address.rpartition(":")
        with RawClient(Where(host, int(port))) as connection:
            find_coordinator(connection, "any", GROUP)
        self.topic = new_topic(address, "membership", partitions=PARTITIONS)

    def link(self) -> Link:
        link = Link(self.loop, self.address, f"bench-{len(self.links)}")
        self.links.append(link)
        return link

    def close(self) -> None:
        for link in self.links:
            if not link.is_closed:
                link.close()
        self.links.clear()

    def wait_until_stable(self, members: list[Member]) -> float:
        return self.loop.run_until(
            lambda: is_stable(members, PARTITIONS), f"{len(members)} members are stable"
        )


def _classic(groups: Groups, group_id: str, topic: str) -> Member:
    return ClassicMember(
        groups.link(),
        groups.loop,
        group_id,
        topic,
        PARTITIONS,
        session_ms=DEFAULT_SESSION_MS,
        heartbeat_seconds=CLASSIC_HEARTBEAT_SECONDS,
        random=groups.random,
    )


def _quick_classic(groups: Groups, group_id: str, topic: str) -> Member:
    return ClassicMember(
        groups.link(),
        groups.loop,
        group_id,
        topic,
        PARTITIONS,
        session_ms=SESSION_MS,
        heartbeat_seconds=HEARTBEAT_MS / 1_000,
        random=groups.random,
    )


def _consumer(groups: Groups, group_id: str, topic: str) -> Member:
    return ConsumerMember(groups.link(), groups.loop, group_id, topic, random=groups.random)


PROTOCOLS: Final[dict[str, NewMember]] = {"classic": _classic, "new": _consumer}
QUICK_PROTOCOLS: Final[dict[str, NewMember]] = {"classic": _quick_classic, "new": _consumer}


def new_group(groups: Groups, new_member: NewMember, count: int) -> list[Member]:
    group_id = f"bench-{time.monotonic_ns()}"
    return [new_member(groups, group_id, groups.topic) for _ in range(count)]


def all_join(groups: Groups, new_member: NewMember) -> float:
    members = new_group(groups, new_member, MEMBERS)
    for member in members:
        member.join()
    began = time.perf_counter()
    stable = groups.wait_until_stable(members)
    groups.close()
    return stable - began


def _joins(groups: Groups, new_member: NewMember) -> tuple[float, float]:
    """Return the seconds of both ways to join, each in a group of its own."""
    together = all_join(groups, new_member)
    members = new_group(groups, new_member, MEMBERS)
    for member in members[:-1]:
        member.join()
    groups.wait_until_stable(members[:-1])
    groups.loop.run_for(SETTLE_SECONDS)
    members[-1].join()
    began = time.perf_counter()
    one_more = groups.wait_until_stable(members) - began
    groups.close()
    return together, one_more


def _killed(groups: Groups, new_member: NewMember) -> float:
    """Return the seconds from the end of a killed member's session until all is owned again."""
    members = new_group(groups, new_member, MEMBERS)
    for member in members:
        member.join()
    groups.wait_until_stable(members)
    groups.loop.run_for(SETTLE_SECONDS)
    members[0].die()
    began = time.perf_counter()
    moved = groups.wait_until_stable(members[1:]) - began
    groups.close()
    return moved - SESSION_MS / 1_000
