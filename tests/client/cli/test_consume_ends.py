"""`odradek consume` without -f ends, also if a broker returns a wrong end of a partition."""

from typing import cast

import pytest

from odradek.client import TimedOut, TopicPartition
from odradek.client.blocking import Admin, Consumer
from odradek.client.cli.records import _lists
from odradek.client.cli.waiting import say_why

PLACE = TopicPartition("t", 0)


class ThreeRecords:
    """Stands for a consumer that moves three offsets, one a poll."""

    def __init__(self) -> None:
        self.offset = 0
        self.paused: list[TopicPartition] = []

    def position(self, _partition: TopicPartition) -> int:
        return self.offset

    def pause(self, partition: TopicPartition) -> None:
        self.paused.append(partition)

    def assignment(self) -> list[TopicPartition]:
        return [PLACE]

    def poll(self, _timeout_ms: float, _count: int) -> list[object]:
        self.offset = min(self.offset + 1, 3)
        return []


def test_an_end_that_the_broker_made_up_is_not_waited_for_for_ever() -> None:
    """`odradek consume` waited for it for ever."""
    consumer = ThreeRecords()
    lists = _lists(cast(Consumer, consumer), {PLACE: 10**18}, timeout_s=0)
    for _ in range(4):
        next(lists)
    with pytest.raises(TimedOut, match=r"t-0 was read up to offset 3 .* it ends at 1000000"):
        next(lists)


def test_a_partition_is_paused_where_it_ends() -> None:
    consumer = ThreeRecords()
    lists = _lists(cast(Consumer, consumer), {PLACE: 2}, timeout_s=60)
    assert len(list(lists)) == 2
    assert consumer.paused == [PLACE]


class SilentAdmin:
    def list_offsets(self, _wanted: object) -> None:
        raise TimedOut("no answer")


def test_the_command_does_not_fail_for_what_it_would_have_said() -> None:
    consumer = cast(Consumer, ThreeRecords())
    say_why(cast(Admin, SilentAdmin()), consumer, "127.0.0.1:9092", "read_committed")
