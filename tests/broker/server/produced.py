"""A broker in this process whose lane is on or off, and Produce requests byte for byte."""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import trio

from odradek.broker.api.context import Core
from odradek.broker.broker import Address, serve
from odradek.broker.config.addresses import Listener
from odradek.broker.environment.env import Env, inline
from odradek.broker.partitions.traffic import TopicTraffic
from odradek.protocol.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.apis.topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.protocol.apis.txn import INIT_PRODUCER_ID, InitProducerIdRequest
from odradek.protocol.batch import Codec
from odradek.protocol.connection import ClientProtocol
from odradek.protocol.record import Record, encode_batch
from odradek.protocol.schema import ZERO_UUID
from tests.broker.api.test_largest_requests import Asker
from tests.broker.config.configured import from_properties
from tests.fakes.clock import START_MS, FakeClock
from tests.fakes.disk import FakeDisk
from tests.fakes.meta_store import FakeMetaStore
from tests.fakes.net import FakeClient, FakeNetwork

SECONDS: Final = 120
TOPICS: Final[dict[str, dict[str, str]]] = {
    "plain": {},
    "small": {"segment.bytes": "16384"},
    "compacted": {"cleanup.policy": "compact"},
    "timed": {"message.timestamp.type": "LogAppendTime"},
    "packed": {"compression.type": "gzip"},
}
PARTITIONS: Final = 4
DIRECTORY: Final = "/data"
Records = Sequence[tuple[str, int, bytes | bytearray | None]]
"""Topic, partition and records."""


@dataclass
class Broker:
    network: FakeNetwork
    disk: FakeDisk
    clock: FakeClock
    core: Core
    topic_ids: dict[str, UUID] = field(default_factory=dict)

    def client(self) -> FakeClient:
        return self.network.client()

    async def producer_id(self) -> int:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        found = await Asker(self.client()).ask(INIT_PRODUCER_ID, 4, request)
        assert found.error_code == 0
        return int(found.producer_id)

    def frame(
        self,
        records: Records,
        *,
        version: int = 13,
        acks: int = -1,
        correlation_id: int = 1,
        client_id: str | None = "producer",
        transactional_id: str | None = None,
    ) -> bytes:
        """A Produce request; the partitions of a topic follow each other."""
        topics: dict[str, list[PartitionProduceData]] = {}
        for topic, index, data in records:
            topics.setdefault(topic, []).append(PartitionProduceData(index=index, records=data))
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=30_000,
            topic_data=tuple(
                TopicProduceData(
                    name=name,
                    topic_id=self.topic_ids.get(name, ZERO_UUID),
                    partition_data=tuple(parts),
                )
                for name, parts in topics.items()
            ),
        )
        _, parts = ClientProtocol(client_id).request(PRODUCE, version, request)
        frame = bytearray(b"".join(parts))
        frame[8:12] = correlation_id.to_bytes(4, "big")
        return bytes(frame)

    def traffic(self) -> dict[str, dict[str, int]]:
        """The counts of the topics, by topic and name."""
        return {
            topic: {name: getattr(counts, name) for name in TopicTraffic.__slots__}
            for topic, counts in self.core.partitions.traffic
        }

    def logs(self, *, durable: bool = False) -> dict[str, bytes]:
        """The bytes of all segments of the topics. With `durable`, those that outlive the power."""
        found = {}
        for topic in TOPICS:
            for index in range(PARTITIONS):
                directory = f"{DIRECTORY}/{topic}-{index}"
                for name, content in self.disk.files(directory, ".log", durable=durable).items():
                    found[f"{topic}-{index}/{name}"] = content
        return found


@dataclass
class Producer:
    """A producer on a connection of its own."""

    client: FakeClient
    producer_id: int
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)
    epoch: int = 0
    frames: int = 0
    last: bytes = b""
    """The last request."""

    def batch(
        self,
        topic: str,
        partition: int,
        *values: bytes,
        is_spent: bool = True,
        is_idempotent: bool = True,
        timestamp_ms: int = START_MS,
        codec: Codec = Codec.NONE,
        is_transactional: bool = False,
        key: bytes | None = b"k",
    ) -> bytearray:
        """The next batch for a partition; the one after it has the same sequence if not spent."""
        sequence = self.sequences.get((topic, partition), 0)
        if is_spent and is_idempotent:
            self.sequences[topic, partition] = sequence + len(values)
        return encode_batch(
            [Record(key=key, value=value, timestamp_ms=timestamp_ms) for value in values],
            producer_id=self.producer_id if is_idempotent else -1,
            producer_epoch=self.epoch if is_idempotent else -1,
            base_sequence=sequence if is_idempotent else -1,
            is_transactional=is_transactional,
            codec=codec,
        )

    async def answers(self) -> list[bytes]:
        """All frames that have arrived, once each request has one, or the connection is closed."""
        return await self.client.frames(self.frames)


@asynccontextmanager
async def broker(*, is_at_once: bool = True, **config: str) -> AsyncIterator[Broker]:
    network, disk, clock = FakeNetwork(is_at_once=is_at_once), FakeDisk(), FakeClock()
    settings = {
        "auto.create.topics.enable": "false",
        "broker.session.timeout.ms": "600000",  # of a machine that may stall
        "transaction.state.log.num.partitions": "1",
        "offsets.topic.num.partitions": "1",
        **{name.replace("_", "."): value for name, value in config.items()},
    }
    env = Env(
        clock=clock,
        net=network,
        disk=disk,
        meta=FakeMetaStore(),
        rng=random.Random(1),
        offload=inline,
    )
    started = trio.Event()
    cores: list[Core] = []
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:

            async def run() -> None:
                await serve(
                    env,
                    from_properties(settings),
                    directory=DIRECTORY,
                    address=Address(listeners=(Listener(host="127.0.0.1", port=9092),)),
                    started=lambda _: started.set(),
                    stop=trio.Event(),
                    made=cores.append,
                )

            nursery.start_soon(run)
            await started.wait()
            found = Broker(network, disk, clock, cores[0])
            await _make_topics(found)
            yield found
            nursery.cancel_scope.cancel()


async def _make_topics(found: Broker) -> None:
    asker = Asker(found.client())
    for name, configs in TOPICS.items():
        topic = CreatableTopic(
            name=name,
            num_partitions=PARTITIONS,
            replication_factor=1,
            assignments=(),
            configs=tuple(CreatableTopicConfig(name=k, value=v) for k, v in configs.items()),
        )
        made = await asker.ask(CREATE_TOPICS, 7, CreateTopicsRequest(topics=(topic,)))
        assert made.topics[0].error_code == 0, made
        wanted = MetadataRequest(topics=(MetadataRequestTopic(name=name),))
        answer: Any = await asker.ask(METADATA, 12, wanted)
        found.topic_ids[name] = answer.topics[0].topic_id
