"""The share of a core that a broker takes for 1,000 idle members of consumer groups.

They are raw members in groups of 50, which send heartbeats at the default intervals (3 s classic,
5 s new protocol, at random moments) and nothing else. Each has a connection of its own. The client
is another process, whose time does not count.
"""

from collections.abc import Iterator
from typing import Final

from scripts.benchmarks.figures import Figure, below
from scripts.benchmarks.membership import (
    MEMBERS,
    PROTOCOLS,
    SETTLE_SECONDS,
    Groups,
    NewMember,
    new_group,
    started,
)
from scripts.benchmarks.process import processor_seconds as processor_seconds
from scripts.benchmarks.targets import Target

FAMILY: Final = "idle"
GROUPS: Final = 20
QUICK_GROUPS: Final = 4
SECONDS: Final = 20.0
QUICK_SECONDS: Final = 5.0
MAX_PERCENT: Final = 5.0


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    """Measure a broker that this process started: another one's processor time is not known."""
    if target.new_process is None:
        return
    count = QUICK_GROUPS if quick else GROUPS
    for protocol, new_member in PROTOCOLS.items():
        with started(target, {}) as (address, pid):
            seconds = QUICK_SECONDS if quick else SECONDS
            percent = _idle(Groups(address), new_member, pid, count, seconds)
        yield Figure(
            family=FAMILY,
            name=f"{count * MEMBERS:,} idle members, {protocol}",
            value=percent,
            unit="% of a core",
            floor=below(MAX_PERCENT),
        )


def _idle(groups: Groups, new_member: NewMember, pid: int, count: int, seconds: float) -> float:
    """Return the percentage of a core that the broker takes for idle members."""
    all_members = []
    for _ in range(count):
        members = new_group(groups, new_member, MEMBERS)
        for member in members:
            member.join()
        all_members.append(members)
    for members in all_members:
        groups.wait_until_stable(members)
    groups.loop.run_for(SETTLE_SECONDS)
    before = processor_seconds(pid)
    groups.loop.run_for(seconds)
    taken = processor_seconds(pid) - before
    groups.close()
    return taken / seconds * 100
