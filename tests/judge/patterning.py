"""Members of groups of the new protocol that subscribe by a pattern (KIP-848).

A real Kafka matches patterns in the background, at most once in ten seconds for a group, and the
group gets another epoch then. So what is recorded are the answers' codes, and what each member owns
when its group has come to rest; epochs are not.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from odradek.protocol.apis.group_consumer import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from odradek.protocol.errors import ErrorCode
from tests.judge.asker import asked_until
from tests.judge.broker import Broker
from tests.judge.group_records import patterns_of
from tests.judge.grouping import PRESENT_MS, told
from tests.judge.names import code_name

PREFIX: Final = "@"
"""Stands in a pattern for the prefix of the story's names."""
PAUSE_SECONDS: Final = 0.02
SHOWN: Final = 60
"""The length of the longest pattern that a transcript shows."""
EPOCHS: Final = re.compile(r" (group|assignment|member)_epoch=\d+")


def on_wire(broker: Broker, pattern: str | None) -> str | None:
    return None if pattern is None else pattern.replace(PREFIX, broker.names.prefix)


def _short(pattern: str) -> str:
    return repr(pattern) if len(pattern) <= SHOWN else f"{pattern[:10]!r} ({len(pattern)})"


class Member:
    """It owns what it was given, in the epoch of its last answer."""

    def __init__(
        self, broker: Broker, name: str, group: str = "g", instance: str | None = None
    ) -> None:
        self.broker = broker
        self.name = name
        self.group = group
        self.instance = instance
        self.epoch = 0
        self._owned: tuple[Any, ...] = ()

    def join(self, names: Sequence[str] | None = None, pattern: str | None = None) -> int:
        """Send the first heartbeat. Return the error code."""
        self.epoch, self._owned = 0, ()
        return self._say("joins", names, pattern)

    def change(self, names: Sequence[str] | None = None, pattern: str | None = None) -> int:
        """Send a heartbeat with another subscription. Return the error code."""
        return self._say("changes", names, pattern)

    def leave(self, epoch: int = -1) -> None:
        self.epoch = epoch
        self._say("leaves", None, None)

    def _say(self, verb: str, names: Sequence[str] | None, pattern: str | None) -> int:
        code = self.beat(names, pattern)
        words = [f"{self.name} {verb} {self.group}"]
        words += [f"names {list(names)}"] if names is not None else []
        words += [f"pattern {_short(pattern)}"] if pattern is not None else []
        self.broker.say(f"{' '.join(words)} -> {code_name(code)}")
        return code

    def beat(self, names: Sequence[str] | None = None, pattern: str | None = None) -> int:
        """Send a heartbeat, record nothing, and return the error code."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.broker.wire_group(self.group),
            member_id=self.name,
            member_epoch=self.epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=PRESENT_MS,
            subscribed_topic_names=None
            if names is None
            else tuple(map(self.broker.names.on_wire, names)),
            subscribed_topic_regex=on_wire(self.broker, pattern),
            topic_partitions=tuple(
                ConsumerGroupHeartbeatRequestTopicPartitions(
                    topic_id=each.topic_id, partitions=each.partitions
                )
                for each in self._owned
            ),
        )
        answer = self.broker.line.ask(CONSUMER_GROUP_HEARTBEAT, 1, request)
        if answer.error_code == ErrorCode.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self._owned = answer.assignment.topic_partitions
        return int(answer.error_code)

    @property
    def owned_elsewhere(self) -> int:
        """The number of partitions of other topics than the story's."""
        known = self.broker.names.topic_ids.values()
        return sum(len(each.partitions) for each in self._owned if each.topic_id not in known)

    @property
    def owned(self) -> str:
        """The partitions that it was given of the story's topics, by topic."""
        names = {topic_id: name for name, topic_id in self.broker.names.topic_ids.items()}
        return " ".join(
            sorted(
                f"{names[each.topic_id]}-{','.join(map(str, each.partitions))}"
                for each in self._owned
                if each.topic_id in names
            )
        )


def described(broker: Broker, group: str) -> Any:
    request = ConsumerGroupDescribeRequest(
        group_ids=(broker.wire_group(group),), include_authorized_operations=False
    )
    return broker.line.ask(CONSUMER_GROUP_DESCRIBE, 1, request)


def describe(broker: Broker, group: str = "g") -> None:
    """ConsumerGroupDescribe, without the epochs."""
    said = told(broker, described(broker, group)).replace(broker.names.prefix, PREFIX)
    broker.say(f"describe {group} -> {EPOCHS.sub('', said)}")


def settle(broker: Broker, wanted: Mapping[Member, str]) -> None:
    """Send heartbeats until each member owns what is wanted and its group is stable."""
    members = list(wanted)
    groups = sorted({member.group for member in members})

    def look() -> list[str]:
        found = [f"{each.name} {code_name(each.beat())} {each.owned}" for each in members]
        states = (described(broker, group).groups[0].group_state for group in groups)
        return [*found, *states]

    right = [f"{each.name} NONE {wanted[each]}" for each in members] + ["Stable"] * len(groups)
    asked_until(look, lambda found: found == right, pause_seconds=PAUSE_SECONDS)
    broker.say(" | ".join(f"{each.name} of {each.group} has {each.owned}" for each in members))


def settle_when_matched(broker: Broker, member: Member, pattern: str) -> None:
    """Send heartbeats until a pattern is stored with its topics, and the group is stable."""
    wire = broker.wire_group(member.group)
    asked_until(
        lambda: (member.beat(), patterns_of(broker, wire)),
        lambda found: on_wire(broker, pattern) in found[1],
        pause_seconds=PAUSE_SECONDS,
    )
    asked_until(
        lambda: (member.beat(), described(broker, member.group).groups[0].group_state),
        lambda found: found == (ErrorCode.NONE, "Stable"),
        pause_seconds=PAUSE_SECONDS,
    )
    broker.say(f"{member.name} of {member.group} has {member.owned or 'nothing'}")
