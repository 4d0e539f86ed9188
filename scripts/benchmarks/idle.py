"""The share of a core that a broker takes for 1,000 idle members of consumer groups.

They are raw members in groups of 50, which send heartbeats at the default intervals (3 s classic,
5 s new protocol, at random moments) and nothing else. Each has a connection of its own. The client
is another process, whose time does not count.
"""

import os
from collections.abc import Iterator
from pathlib import Path
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


def processor_seconds(pid: int) -> float:
    """Return the time that a process has computed, as Linux reports it."""
    behind_the_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    user_ticks, system_ticks = behind_the_name.split()[11:13]
    return (int(user_ticks) + int(system_ticks)) / os.sysconf("SC_CLK_TCK")
