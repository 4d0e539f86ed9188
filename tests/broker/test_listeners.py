"""Several listeners, IPv4 and IPv6: where clients connect, and where they are sent."""

import random
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import pytest
import trio

from odradek.broker.broker import Address, serve
from odradek.broker.cluster.image import BrokerImage, Endpoint
from odradek.broker.cluster.store import broker_key, pack_broker, read_broker
from odradek.broker.config.addresses import Listener
from odradek.broker.environment.env import Env, Versioned, inline
from odradek.broker.testing import RunningBroker
from odradek.protocol.apis.coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from odradek.protocol.apis.metadata import (
    DESCRIBE_CLUSTER,
    METADATA,
    DescribeClusterRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from odradek.protocol.apis.topics import (
    CREATE_TOPICS,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.api.test_largest_requests import Asker
from tests.broker.asks import batch, create_topic, produce
from tests.broker.config.configured import from_properties
from tests.broker.raw import PATIENCE_SECONDS, RawClient
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FakeDisk
from tests.fakes.meta_store import FakeMetaStore
from tests.fakes.net import FakeNetwork

INSIDE = "INSIDE"
OUTSIDE = "OUTSIDE"
NAMED = "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"


@dataclass(frozen=True)
class Place:
    host: str
    port: int


@contextmanager
def broker(directory: Path, *arguments: str) -> Iterator[list[Place]]:
    """A broker process with options of its own; the addresses that it says it serves."""
    process = subprocess.Popen(
        [*RunningBroker.command, "--data-dir", str(directory), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            said, _, _ = process.stdout.readline().partition(", data in ")
            yield [
                Place(host=match[1] or match[2], port=int(match[3]))
                for match in re.finditer(r"(?:\[([^]]+)\]|([^\s\[\],]+)):(\d+)", said)
            ]
        finally:
            process.kill()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[Place]]:
    """A broker with two listeners; the second is advertised under another name."""
    listeners = "listeners=INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.2:0"
    with broker(
        tmp_path,
        *("--set", listeners, "--set", NAMED),
        *("--set", "advertised.listeners=OUTSIDE://kafka.example.org:443"),
    ) as places:
        yield places


def where(client: RawClient) -> set[tuple[str, int]]:
    """All addresses of the broker that the answers of three APIs have."""
    cluster = client.ask(METADATA, 12, MetadataRequest(topics=())).brokers
    request = FindCoordinatorRequest(key="", key_type=1, coordinator_keys=("x",))
    coordinators = client.ask(FIND_COORDINATOR, 4, request).coordinators
    every = DescribeClusterRequest(include_cluster_authorized_operations=False)
    described = client.ask(DESCRIBE_CLUSTER, 0, every).brokers
    return {(each.host, each.port) for each in (*cluster, *coordinators, *described)}


def test_answers_have_the_addresses_of_the_listener_that_was_asked(two: list[Place]) -> None:
    inside, outside = two
    with RawClient(inside) as client:
        assert where(client) == {("127.0.0.1", inside.port)}
    with RawClient(outside) as client:
        assert where(client) == {("kafka.example.org", 443)}


@pytest.mark.slow
def test_what_is_written_through_one_listener_is_read_through_another(tmp_path: Path) -> None:
    listeners = "listeners=INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.2:0"
    with broker(tmp_path, "--set", listeners, "--set", NAMED) as (inside, outside):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": f"{inside.host}:{inside.port}", "transactional.id": "x"}
        )
        producer.init_transactions(PATIENCE_SECONDS)
        producer.begin_transaction()
        producer.produce("greetings", b"hello", partition=0)
        producer.commit_transaction(PATIENCE_SECONDS)
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": f"{outside.host}:{outside.port}", "group.id": "readers"}
        )
        try:
            consumer.assign([confluent_kafka.TopicPartition("greetings", 0, 0)])
            message = consumer.poll(PATIENCE_SECONDS)
            assert message is not None
            assert message.value() == b"hello"
        finally:
            consumer.close()


@pytest.mark.parametrize("listen", [":0", "[::]:0", "localhost:0"])
def test_a_listener_serves_ipv4_and_ipv6(listen: str, tmp_path: Path) -> None:
    with broker(tmp_path, "--listen", listen, "--advertise", "localhost:9") as (place,):
        for host in ("127.0.0.1", "::1"):
            with RawClient(Place(host, place.port)) as client:
                assert where(client) == {("localhost", 9)}


def test_an_ipv6_address_alone_is_served_alone(tmp_path: Path) -> None:
    with broker(tmp_path, "--listen", "[::1]:0") as (place,):
        with RawClient(place) as client:
            create_topic(client, "t")
            assert produce(client, "t", batch(b"x")).error_code == ErrorCode.NONE
            assert where(client) == {("::1", place.port)}
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", place.port))


def test_a_broker_of_an_earlier_version_has_one_address_for_all_listeners() -> None:
    earlier = BrokerImage(node_id=1, host="h", port=1)
    stored = Versioned(value=pack_broker(earlier, "d"), create_revision=0, mod_revision=0)
    read = read_broker(broker_key(1), stored)
    assert read.address_on(INSIDE) == read.address_on(None) == ("h", 1)


async def test_a_broker_without_the_listener_that_was_asked_is_not_named() -> None:
    """As in Kafka: LISTENER_NOT_FOUND for what it leads, and it is not among the brokers."""
    network = FakeNetwork()
    meta = FakeMetaStore()
    other = BrokerImage(
        node_id=7, host="h", port=1, listeners=(Endpoint(name=OUTSIDE, host="h", port=1),)
    )
    await meta.txn((), {broker_key(7): pack_broker(other, "d")})
    env = Env(
        clock=FakeClock(),
        net=network,
        disk=FakeDisk(),
        meta=meta,
        rng=random.Random(1),
        offload=inline,
    )
    started = trio.Event()
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            await serve(
                env,
                from_properties(
                    {
                        "auto.create.topics.enable": "false",
                        "broker.session.timeout.ms": "600000",  # of a machine that may stall
                    }
                ),
                directory="/data",
                address=Address(listeners=(Listener(name=INSIDE, host="127.0.0.1", port=9092),)),
                started=lambda _: started.set(),
                stop=trio.Event(),
            )

        nursery.start_soon(run)
        await started.wait()
        asker = Asker(network.client())
        topic = CreatableTopic(
            name="t",
            num_partitions=-1,
            replication_factor=-1,
            assignments=(CreatableReplicaAssignment(partition_index=0, broker_ids=(7,)),),
            configs=(),
        )
        created = await asker.ask(CREATE_TOPICS, 7, CreateTopicsRequest(topics=(topic,)))
        assert created.topics[0].error_code == ErrorCode.NONE, created
        wanted = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
        for version, code in (
            (12, ErrorCode.LISTENER_NOT_FOUND),
            (5, ErrorCode.LEADER_NOT_AVAILABLE),
        ):
            answer = await asker.ask(METADATA, version, wanted)
            assert [each.node_id for each in answer.brokers] == [1]
            (partition,) = answer.topics[0].partitions
            assert (partition.error_code, partition.leader_id) == (code, -1)
        nursery.cancel_scope.cancel()
