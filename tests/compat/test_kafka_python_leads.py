"""kafka-python leads a group whose other members take their time to join again.

It forgets an assignment that arrives between two polls, and joins again. From a leader that is a
rebalance for all, in which it forgets the next assignment. A group of the siege did so for two
minutes. The agents of kafka-python have a mend, without which this test fails.

The leader is a dynamic member: with static and dynamic ones in a group, kafka-python's range
assignor forgets members, depending on the order in which the coordinator lists them.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

from odradek.client.blocking import Consumer
from tests.compat import confluent
from tests.compat.agent import NO_INSTANCE
from tests.compat.agents import Agent, python_command
from tests.compat.conftest import CreateTopic
from tests.compat.test_mixed_groups import Polled, polled_by
from tests.stories.looking import eventually

HEARTBEAT_MS = 1_000
"""A member hears of a rebalance so late; ten polls of the leader end meanwhile."""
GENERATIONS_MAX = 12
"""One for each of the three members, and many for a machine that stands still."""
LOOK_SECONDS = 0.5


def polls_of(member: Consumer) -> Callable[[], list[bytes]]:
    return lambda: [record.value or b"" for record in member.poll(50)]


def test_a_leader_that_polls_often_settles_with_members_that_join_late(
    bootstrap: str, create_topic: CreateTopic, unique: Callable[[str], str]
) -> None:
    source, target = create_topic(partitions=3), create_topic(partitions=3)
    group, name = unique("group"), unique("relay")
    sender = confluent.producer(bootstrap)
    with closing(Agent(python_command("kafka_python"))) as agent, ExitStack() as stack:
        agent.tell("relay", bootstrap, name, group, NO_INSTANCE, source, target, 10**12, 10)
        confluent.deliver(sender, source, [b"first"], partition=0)
        agent.progress(1)  # it has all three partitions, and leads
        threads = stack.enter_context(ThreadPoolExecutor(2))
        followers: list[Consumer] = []
        for _ in range(2):
            follower = stack.enter_context(
                Consumer(
                    bootstrap,
                    group_id=group,
                    partition_assignors=["range"],
                    heartbeat_interval_ms=HEARTBEAT_MS,
                )
            )
            followers.append(follower)
            follower.subscribe(source)
            stack.enter_context(polled_by(threads, Polled(polls_of(follower), set)))
            eventually(lambda: bool(followers[-1].assignment()), True)
        for partition in range(3):
            confluent.deliver(sender, source, [b"second"], partition=partition)
        while agent.line_within(LOOK_SECONDS) is None:  # it has its assignment, and copies
            assert followers[0].group_metadata().generation_id <= GENERATIONS_MAX
