"""The cost of many partitions: 1,000, 5,000 and 20,000 on one broker, in topics of ten.

Everything but the memory is processor time of the broker, so that a busy machine says the same. The
topics are made by requests, the broker is killed, and started on what is there. A figure that grows
with the partitions although it is about one of them is what these rows look for.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

import click

from odradek.protocol.apis.configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from odradek.protocol.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.apis.topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from odradek.protocol.record import Record, encode_batch
from scripts.benchmarks.figures import OURS, Figure
from scripts.benchmarks.process import processor_seconds, resident_mib
from scripts.benchmarks.raw_producer import TIMEOUT_MS, ask
from scripts.benchmarks.targets import Process, Target, wait_until_serving
from tests.broker.raw import RawClient

FAMILY: Final = "partitions"
COUNTS: Final = (1_000, 5_000, 20_000)
QUICK_COUNTS: Final = (100, 400)
OF_A_TOPIC: Final = 10
TOPICS_AT_ONCE: Final = 50
ROUNDS: Final = 100
ROUNDS_OF_ALL: Final = 5
IDLE_SECONDS: Final = 20.0
QUICK_IDLE_SECONDS: Final = 5.0
SETTLE_SECONDS: Final = 6.0
"""Longer than the first checkpoint of a new log, and than the pause before preferred elections."""
CHECKPOINTS_SECONDS: Final = 15.0
"""Longer than it takes until the checkpoints of all logs are written, a few seconds behind them."""
TOPIC: Final = 2
SET: Final = 0


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    """Measure a broker that this process started: another one's processor time is not known."""
    if target.new_process is None:
        return
    for count in QUICK_COUNTS if quick else COUNTS:
        with target.new_process({"max.broker.partitions": "100000"}) as process:
            try:
                yield from _measured(process, count, quick)
            except OSError as error:
                # A JVM maps three files of each partition, and Linux allows 65,530 maps.
                if target.name == OURS:
                    raise
                click.echo(f"{target.name} has gone with {count:,} partitions: {error}", err=True)
                return


def _measured(process: Process, count: int, quick: bool) -> Iterator[Figure]:
    names = [f"grown-{number}" for number in range(count // OF_A_TOPIC)]

    def figure(name: str, value: float, unit: str = "ms") -> Figure:
        return Figure(family=FAMILY, name=f"{count:,} partitions: {name}", value=value, unit=unit)

    _launch(process)
    with RawClient(process) as client:
        taken_ms = _taken_ms(process, create, client, names)
        yield figure("making one", taken_ms / count)
    time.sleep(SETTLE_SECONDS)
    process.kill()
    _launch(process)
    yield figure("start on what is there", processor_seconds(process.pid) * 1000)
    time.sleep(SETTLE_SECONDS)
    yield figure("memory", resident_mib(process.pid), "MiB")
    seconds = QUICK_IDLE_SECONDS if quick else IDLE_SECONDS
    idle_ms = _taken_ms(process, time.sleep, seconds)
    yield figure("a minute without requests", idle_ms / seconds * 60)
    with RawClient(process) as client:
        everything = MetadataRequest(topics=None)
        one = MetadataRequest(topics=(MetadataRequestTopic(name=names[0]),))
        for name, request, rounds in (
            ("Metadata of all", everything, ROUNDS_OF_ALL),
            ("Metadata of one topic", one, ROUNDS),
        ):
            taken_ms = _taken_ms(process, _ask, client, request, rounds)
            yield figure(name, taken_ms / rounds)
        taken_ms = _taken_ms(process, _alter, client, names[0])
        yield figure("a setting of one topic", taken_ms / ROUNDS)
        taken_ms = _taken_ms(process, create, client, _more(), 1)
        yield figure("one topic more", taken_ms / ROUNDS)
        taken_ms = _taken_ms(process, _write, client, names)
        yield figure("a first record in each, its flush and its checkpoint, one", taken_ms / count)
        taken_ms = _taken_ms(process, _write, client, names)
        yield figure("a further record in each, and its checkpoint, one", taken_ms / count)
    process.kill()
    _launch(process)
    yield figure("start on logs with records", processor_seconds(process.pid) * 1000)
    time.sleep(SETTLE_SECONDS)
    yield figure("memory with records", resident_mib(process.pid), "MiB")


def _launch(process: Process) -> None:
    process.launch()
    wait_until_serving(process)


def _taken_ms(process: Process, work: Callable[..., None], *arguments: object) -> float:
    """Return the milliseconds that the broker computes while `work` runs."""
    before = processor_seconds(process.pid)
    work(*arguments)
    return (processor_seconds(process.pid) - before) * 1000


def _ask(client: RawClient, request: MetadataRequest, rounds: int) -> None:
    for _ in range(rounds):
        client.request(METADATA, 9, request)
        client.frame()


def _more() -> list[str]:
    return [f"more-{number}" for number in range(ROUNDS)]


def create(client: RawClient, names: list[str], at_once: int = TOPICS_AT_ONCE) -> None:
    for start in range(0, len(names), at_once):
        topics = tuple(
            CreatableTopic(
                name=name,
                num_partitions=OF_A_TOPIC,
                replication_factor=1,
                assignments=(),
                configs=(),
            )
            for name in names[start : start + at_once]
        )
        answer = client.ask(CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics))
        refused = [each for each in answer.topics if each.error_code]
        assert not refused, refused[:1]


def _write(client: RawClient, names: list[str]) -> None:
    """Append a record to each partition, and wait until each has a checkpoint that covers it."""
    batch = encode_batch([Record(key=None, value=b"x" * 100, timestamp_ms=0)])
    partitions = tuple(
        PartitionProduceData(index=index, records=batch) for index in range(OF_A_TOPIC)
    )
    for start in range(0, len(names), TOPICS_AT_ONCE):
        topics = tuple(
            TopicProduceData(name=name, partition_data=partitions)
            for name in names[start : start + TOPICS_AT_ONCE]
        )
        request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=topics)
        ask(client, (PRODUCE, 12, request))
    time.sleep(CHECKPOINTS_SECONDS)


def _alter(client: RawClient, name: str) -> None:
    for number in range(ROUNDS):
        config = AlterableConfig(
            name="retention.ms", config_operation=SET, value=str(900_000_000 + number)
        )
        resource = IncrementalAlterConfigsResource(
            resource_type=TOPIC, resource_name=name, configs=(config,)
        )
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        answer = client.ask(INCREMENTAL_ALTER_CONFIGS, 1, request)
        assert not answer.responses[0].error_code, answer
