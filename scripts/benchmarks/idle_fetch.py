"""The broker's processor time for a poll of a consumer of many idle partitions (KIP-227).

A poll with a fetch session lists nothing, and the broker looks at no partition. Without a session
it lists all of them, as before sessions were kept, and as librdkafka still does.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from odradek.protocol.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from scripts.benchmarks.figures import Figure, below
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.targets import Target
from tests.broker.raw import RawClient

FAMILY: Final = "idle-fetch"
PARTITIONS: Final = 1_000
POLLS: Final = 500
QUICK_POLLS: Final = 50
WARM_UP: Final = 20
VERSION: Final = 12
NO_SESSION: Final = -1
TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    """Measure a broker that this process started: the processor time of another is not known."""
    if target.new_process is None:
        return
    with target.new_process() as process:
        process.launch()
        topic = new_topic(f"{process.host}:{process.port}", "idle", partitions=PARTITIONS)
        with RawClient(process) as client:
            polls = QUICK_POLLS if quick else POLLS
            without = _milliseconds(client, process.pid, topic, polls, in_session=False)
            # A poll in a session costs so little that more of them are needed.
            within = _milliseconds(client, process.pid, topic, 20 * polls, in_session=True)
    yield Figure(family=FAMILY, name="poll without a session", value=without, unit="ms")
    yield Figure(family=FAMILY, name="poll in a session", value=within, unit="ms")
    yield Figure(
        family=FAMILY,
        name="in a session of without",
        value=within / without,
        unit="",
        floor=below(0.2),
    )


def _milliseconds(
    client: RawClient, pid: int, topic: str, polls: int, *, in_session: bool
) -> float:
    """Return the processor time of one poll."""
    everything = tuple(
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in range(PARTITIONS)
    )
    whole = (FetchTopic(topic=topic, partitions=everything),)
    session_id, epoch = 0, 0 if in_session else NO_SESSION
    begun = 0.0
    for number in range(WARM_UP + polls):
        if number == WARM_UP:
            begun = _seconds(pid)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_id=session_id,
            session_epoch=epoch,
            topics=() if epoch > 0 else whole,
        )
        answer = client.ask(FETCH, VERSION, request)
        assert answer.error_code == 0, answer.error_code
        if in_session:
            session_id, epoch = answer.session_id, epoch + 1
    return (_seconds(pid) - begun) * 1000 / polls


def _seconds(pid: int) -> float:
    """Return the processor time that a process has used, as Linux reports it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND
