"""OffsetCommit of 1,000 partitions of one topic, by raw requests, one after the other."""

import statistics
import time
from collections.abc import Iterator
from typing import Final

from odradek.protocol.apis.group_offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from scripts.benchmarks.figures import Figure, at_most_of_theirs
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.many import Where
from scripts.benchmarks.raw_producer import (
    GIVE_UP_SECONDS,
    GROUP,
    TRY_AGAIN,
    find_coordinator,
    pause,
)
from scripts.benchmarks.targets import Target
from tests.broker.raw import RawClient

FAMILY: Final = "commits"
SIZES: Final = (1, 1_000)
"""Numbers of partitions in a request."""
COMMITS: Final = 300
QUICK_COMMITS: Final = 50
WARM_UP: Final = 200
GROUP_ID: Final = "bench-commits"
MOST_OF_THEIRS: Final = 2.0


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    with target.running() as address:
        topic = new_topic(address, "commits", partitions=max(SIZES))
        host, _, port = address.rpartition(":")
        with RawClient(Where(host, int(port))) as connection:
            find_coordinator(connection, GROUP_ID, GROUP)
            deadline = time.monotonic() + GIVE_UP_SECONDS
            while set(_commit(connection, topic, max(SIZES), 0)) & TRY_AGAIN:
                pause(deadline, "the first commit was not possible")
            for size in SIZES:
                count = WARM_UP + (QUICK_COMMITS if quick else COMMITS)
                times_ms = [_timed(connection, topic, size, number) for number in range(count)]
                yield Figure(
                    family=FAMILY,
                    name=f"OffsetCommit of {size:,} partition{'s' if size > 1 else ''}, p50",
                    value=statistics.median(times_ms[WARM_UP:]),
                    unit="ms",
                    floor=at_most_of_theirs(MOST_OF_THEIRS) if size == max(SIZES) else None,
                )


def _timed(connection: RawClient, topic: str, size: int, offset: int) -> float:
    request = _request(topic, size, offset)
    began = time.perf_counter()
    answer = connection.ask(OFFSET_COMMIT, 8, request)
    taken_ms = (time.perf_counter() - began) * 1_000
    codes = {each.error_code for each in answer.topics[0].partitions}
    if codes != {0}:
        raise RuntimeError(f"the broker answered {sorted(codes)}")
    return taken_ms


def _commit(connection: RawClient, topic: str, size: int, offset: int) -> list[int]:
    answer = connection.ask(OFFSET_COMMIT, 8, _request(topic, size, offset))
    return [each.error_code for each in answer.topics[0].partitions]


def _request(topic: str, size: int, offset: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=GROUP_ID,
        member_id="",
        topics=(
            OffsetCommitRequestTopic(
                name=topic,
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=""
                    )
                    for index in range(size)
                ),
            ),
        ),
    )
