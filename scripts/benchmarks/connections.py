"""4,096 connections that have each asked one thing and are silent: memory of each, and the CPU.

Then a fleet starts: many transactional producers at once, each with its own connection, ask for
versions, for a topic and for a producer id, and write their first batch.
"""

import contextlib
import resource
import time
from collections.abc import Iterator
from typing import Final

from odradek.protocol.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsRequest
from scripts.benchmarks.figures import Figure
from scripts.benchmarks.idle import processor_seconds
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.many import Where
from scripts.benchmarks.process import MIB, resident_mib
from scripts.benchmarks.raw_producer import RawProducer, ask, find_coordinator, together
from scripts.benchmarks.targets import Target
from tests.broker.raw import RawClient

FAMILY: Final = "connections"
COUNT: Final = 4_096
QUICK_COUNT: Final = 512
FLEETS: Final = (250, 1_000, 4_000)
QUICK_FLEETS: Final = (50, 200)
TOPIC_PARTITIONS: Final = 50
SPARE_FILES: Final = 1_024
SECONDS: Final = 20.0
QUICK_SECONDS: Final = 5.0
SETTLE_SECONDS: Final = 3.0


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    """Measure a broker that this process started: the memory of another one is not known."""
    if target.new_process is None:
        return
    count = QUICK_COUNT if quick else COUNT
    seconds = QUICK_SECONDS if quick else SECONDS
    allow_files(max(count, *FLEETS) + SPARE_FILES)  # the broker inherits the limit
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(target.served())
        assert broker.pid is not None
        host, _, port = broker.address.rpartition(":")
        time.sleep(SETTLE_SECONDS)
        before_mib = resident_mib(broker.pid)
        for _ in range(count):
            client = stack.enter_context(RawClient(Where(host, int(port))))
            client.ask(API_VERSIONS, 3, _WHO)
        time.sleep(SETTLE_SECONDS)
        each_kib = (resident_mib(broker.pid) - before_mib) * MIB / count / 1024
        before_seconds = processor_seconds(broker.pid)
        time.sleep(seconds)
        percent = (processor_seconds(broker.pid) - before_seconds) / seconds * 100
    yield Figure(
        family=FAMILY, name=f"memory of each of {count:,} connections", value=each_kib, unit="KiB"
    )
    yield Figure(
        family=FAMILY, name=f"{count:,} idle connections", value=percent, unit="% of a core"
    )
    for count in QUICK_FLEETS if quick else FLEETS:
        yield _fleet(target, count)


def _fleet(target: Target, count: int) -> Figure:
    """Measure the processor time that the start of one of `count` producers costs the broker."""
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(target.served())
        assert broker.pid is not None
        host, _, port = broker.address.rpartition(":")
        topic = new_topic(broker.address, "fleet", partitions=TOPIC_PARTITIONS)
        where = Where(host, int(port))
        with RawClient(where) as first:
            find_coordinator(first, "first")
            ask(first, RawProducer(transactional_id="first").init())
        time.sleep(SETTLE_SECONDS)
        before_seconds = processor_seconds(broker.pid)
        clients = [stack.enter_context(RawClient(where)) for _ in range(count)]
        together(clients, [(API_VERSIONS, 3, _WHO)] * count)
        wanted = MetadataRequest(topics=(MetadataRequestTopic(name=topic),))
        together(clients, [(METADATA, 9, wanted)] * count)
        producers = [RawProducer(transactional_id=f"fleet-{number}") for number in range(count)]
        answers = together(clients, [producer.init() for producer in producers])
        for producer, answer in zip(producers, answers, strict=True):
            producer.take(answer)
        batches = [
            producer.produce(topic, [number % TOPIC_PARTITIONS])
            for number, producer in enumerate(producers)
        ]
        together(clients, batches)
        each_ms = (processor_seconds(broker.pid) - before_seconds) * 1000 / count
    return Figure(
        family=FAMILY, name=f"start of one of {count:,} producers", value=each_ms, unit="ms"
    )


_WHO: Final = ApiVersionsRequest(client_software_name="bench", client_software_version="1")


def allow_files(count: int) -> None:
    """Raise the limit of open files of this process and its children to at least `count`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
