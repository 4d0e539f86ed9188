"""The relay of `tests/compat/agents.py` over our own client: `python -m tests.siege.our_relay`."""

import sys

from odradek.client.blocking import (
    Aborted,
    Consumer,
    OdradekError,
    Producer,
    TopicPartition,
)
from odradek.client.config import ConsumerOptions
from tests.compat.agent import (
    EVERY_THIRD,
    LONGEST_POLL_MS,
    NO_INSTANCE,
    SHORT_SESSION_MS,
    Agent,
    say,
)


class OnPurpose(Exception):
    """Ends a transaction by an exception of the user."""


class OurAgent(Agent):
    """An agent that knows one command: a relay."""

    refusal = OdradekError

    def do_relay(self, *words: str) -> str:
        return relay(*words[:6], count=int(words[6]), batch=int(words[7]))


def relay(
    bootstrap: str,
    transactional_id: str,
    group: str,
    instance: str,
    source: str,
    target: str,
    *,
    count: int,
    batch: int,
) -> str:
    """Copy `count` records of the source, each third transaction aborted and done again."""
    number = committed = 0
    with (
        # A predecessor's open transaction ends here, so the positions are read afterwards.
        Producer(bootstrap, transactional_id=transactional_id) as sender,
        Consumer(bootstrap, **membership(group, instance)) as receiver,
    ):
        receiver.subscribe(source)
        while True:
            records = receiver.poll(timeout_ms=100, max_records=batch)
            if not records:
                if _is_done(receiver, count):
                    break
                continue
            number += 1
            member = receiver.group_metadata()
            after = {
                TopicPartition(source, record.partition): record.offset + 1 for record in records
            }
            try:
                with sender.transaction() as transaction:
                    for record in records:
                        transaction.send(target, record.value, partition=record.partition)
                    transaction.send_offsets(after, member)
                    if number % EVERY_THIRD == 0:
                        raise OnPurpose
            except (OnPurpose, Aborted):
                receiver.seek_to_committed()
                continue
            committed += 1
            say("progress", committed)
    return f"{committed} {number - committed}"


def membership(group: str, instance: str) -> ConsumerOptions:
    """Return the options of a member that has an assignor in common with the other clients.

    Without an instance (`-`) it is forgotten after the shortest session.
    """
    options: ConsumerOptions = {
        "group_id": group,
        "partition_assignors": ["range"],
        "heartbeat_interval_ms": 300,
    }
    if instance == NO_INSTANCE:
        times: ConsumerOptions = {
            "session_timeout_ms": SHORT_SESSION_MS,
            "max_poll_interval_ms": LONGEST_POLL_MS,
        }
        return {**options, **times}
    return {**options, "group_instance_id": instance}


def _is_done(receiver: Consumer, count: int) -> bool:
    stored = receiver.committed(receiver.assignment())
    return sum(place.offset for place in stored.values()) == count


if __name__ == "__main__":
    OurAgent().run(sys.stdin)
