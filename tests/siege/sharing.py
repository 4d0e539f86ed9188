"""A group of copiers: members of several clients that share one source, come, go and are killed.

Each member is an agent that copies what the group gives it, in transactions that store the offsets
as the member that has read them (KIP-447). It lives for seconds, is killed, and another takes its
place later. Its partitions move to the other members when its session is over. In the end all
members stay, until the group has copied everything and, in the classic protocol, each partition has
one owner.

aiokafka stores offsets of a transaction without its member id, so that a member that was taken for
dead would copy twice. Its members have a group of their own, and copy without transactions: each
record at least once (`at_least_once.py`).
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from odradek.client import OdradekError
from odradek.client.blocking import Admin, Consumer, TopicPartition
from tests.compat.agent import NO_INSTANCE, SHOW_STACKS
from tests.compat.agents import Agent, Refused
from tests.siege.copying import FINISH_SECONDS, OUT_OF_REACH, PAUSE_SECONDS

FOR_SECONDS: Final = (10.0, 25.0)
"""How long a member lives."""
AWAY_SECONDS: Final = (0.5, 8.0)
LOOK_SECONDS: Final = 0.5
STILL_SECONDS: Final = 30.0
"""A member without progress for so long is killed. While it hangs it sends heartbeats, but does not
join again, and holds up the rebalance of the others for `max.poll.interval.ms`.

So a group comes to rest within the longest of its members' times: `max.poll.interval.ms` for those
that hang, and the session's time for those that were killed, counted anew after each failover."""


class SharingGroup:
    """The members by the names of their clients, each in a thread."""

    def __init__(
        self,
        *,
        name: str,
        commands: Mapping[str, Sequence[str]],
        bootstrap: str,
        source: str,
        partitions: int,
        batch: int,
        protocol: str,
        seed: int,
        is_transactional: bool = True,
    ) -> None:
        self.name = name
        self.source = source
        self.target = f"{name}-copy"
        self.group = f"{name}-group"
        self.is_transactional = is_transactional
        self.refusals: list[str] = []
        self.settled_seconds = 0.0
        """The time from the end of the siege until all was copied and owned."""
        self._transactions: Counter[str] = Counter()
        self._commands = commands
        self._bootstrap = bootstrap
        self._partitions = [TopicPartition(source, number) for number in range(partitions)]
        self._batch = batch
        self._protocol = protocol
        self._agents: dict[str, Agent] = {}
        self._dice = {member: random.Random(f"{seed} {name} {member}") for member in commands}
        self._is_besieged = True
        self._is_ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._live_again_and_again, args=(member,))
            for member in commands
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def committed(self) -> dict[str, int]:
        """Return the transactions of each member."""
        return {f"{self.name}-{each}": self._transactions[each] for each in self._commands}

    def finish(self, count: int) -> None:
        """Let the members copy all `count` records, and end them. Raises TimeoutError."""
        self._is_besieged = False
        began = time.monotonic()
        deadline = began + FINISH_SECONDS
        while self._copied() != count or not self._is_owned():
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{self.name} copied {self._copied()} of {count} records; does each partition "
                    f"have one owner: {self._is_owned()}; {self.refusals[-3:]}"
                )
            time.sleep(LOOK_SECONDS)
        self.settled_seconds = time.monotonic() - began
        self.close()
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        """Kill all members, and let none take their places."""
        self._is_ending.set()
        for agent in list(self._agents.values()):
            agent.process.kill()

    def _copied(self) -> int:
        try:
            with Consumer(self._bootstrap, group_id=self.group) as reader:
                stored = reader.committed(self._partitions)
        except OdradekError:
            return -1
        return sum(place.offset for place in stored.values())

    def _is_owned(self) -> bool:
        """Return True if each partition has one owner, as the coordinator has it."""
        try:
            with Admin(self._bootstrap) as admin:
                found = admin.describe_group(self.group)
        except OdradekError:
            return False
        owned = sorted(place for member in found.members for place in member.partitions)
        return found.state == "Stable" and owned == self._partitions

    def _live_again_and_again(self, member: str) -> None:
        dice = self._dice[member]
        while not self._is_ending.is_set():
            self._live(member, dice.uniform(*FOR_SECONDS))
            away = dice.uniform(*AWAY_SECONDS) if self._is_besieged else PAUSE_SECONDS
            self._is_ending.wait(away)

    def _live(self, member: str, seconds: float) -> None:
        """Run an agent until its life is over, or it ends by itself."""
        agent = self._agents[member] = Agent(self._commands[member])
        if self._is_ending.is_set():  # `close` may have come too early to see this one
            agent.process.kill()
        ids = (f"{self.name}-{member}", self.group, NO_INSTANCE)
        command = "relay" if self.is_transactional else "copy"
        words = (command, self._bootstrap, *ids, self.source, self.target)
        before = self._transactions[member]
        over = time.monotonic() + seconds
        still_since = time.monotonic()
        try:
            agent.tell(*words, OUT_OF_REACH, self._batch, self._protocol)
            while not (self._is_besieged and time.monotonic() > over):
                if (line := agent.line_within(LOOK_SECONDS)) is None:
                    if time.monotonic() > still_since + STILL_SECONDS:
                        raise TimeoutError(f"nothing for {STILL_SECONDS:.0f} s: {_where(agent)}")
                    continue
                still_since = time.monotonic()
                kind, *found = line.split()
                if kind == "error":
                    raise Refused(found[0], " ".join(found[1:]))
                self._transactions[member] = before + int(found[0])
        except (Refused, EOFError, TimeoutError, BrokenPipeError) as error:
            if not self._is_ending.is_set():
                self.refusals.append(f"{member}: {error}")
        finally:
            agent.kill()
            agent.close()


def _where(agent: Agent) -> str:
    """Return the stacks of an agent's threads, the innermost call first."""
    agent.process.send_signal(SHOW_STACKS)
    agent.line_within(LOOK_SECONDS)
    return agent.said()
