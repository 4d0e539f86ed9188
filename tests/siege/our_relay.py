"""The relay of `tests/compat/agents.py` over our own client: `python -m tests.siege.our_relay`."""

import sys
from collections.abc import Sequence

from odradek.client.blocking import (
    Aborted,
    Consumer,
    OdradekError,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from tests.compat.agent import EVERY_THIRD, Agent, say

PARTITIONS = 2


class OnPurpose(Exception):
    """Ends a transaction by an exception of the user."""


class OurAgent(Agent):
    """An agent that knows one command: a relay."""

    refusal = OdradekError

    def do_relay(self, *words: str) -> str:
        return relay(*words[:3], *words[4:6], count=int(words[6]), batch=int(words[7]))


def relay(
    bootstrap: str,
    transactional_id: str,
    group: str,
    source: str,
    target: str,
    *,
    count: int,
    batch: int,
) -> str:
    """Copy `count` records of the source, each third transaction aborted and done again."""
    places = [TopicPartition(source, number) for number in range(PARTITIONS)]
    number = committed = 0
    with (
        # A predecessor's open transaction ends here, so the positions are read afterwards.
        Producer(bootstrap, transactional_id=transactional_id) as sender,
        Consumer(bootstrap, group_id=group) as receiver,
    ):
        receiver.assign(places)
        stored = _stored(receiver, places)
        _seek(receiver, stored)
        while sum(stored.values()) != count:
            records = receiver.poll(timeout_ms=100, max_records=batch)
            if not records:
                continue
            number += 1
            after = stored | {
                TopicPartition(source, record.partition): record.offset + 1 for record in records
            }
            try:
                with sender.transaction() as transaction:
                    for record in records:
                        transaction.send(target, record.value, partition=record.partition)
                    offsets = {place: OffsetAndMetadata(at) for place, at in after.items()}
                    transaction.send_offsets(offsets, group)
                    if number % EVERY_THIRD == 0:
                        raise OnPurpose
            except (OnPurpose, Aborted):
                _seek(receiver, stored)
                continue
            stored = after
            committed += 1
            say("progress", committed)
    return f"{committed} {number - committed}"


def _stored(receiver: Consumer, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    found = receiver.committed(places)
    return {place: found[place].offset if place in found else 0 for place in places}


def _seek(receiver: Consumer, positions: dict[TopicPartition, int]) -> None:
    for place, offset in positions.items():
        receiver.seek(place, offset)


if __name__ == "__main__":
    OurAgent().run(sys.stdin)
