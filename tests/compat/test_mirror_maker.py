"""MirrorMaker 2, unmodified, with the file of docs/migrating.md, from Kafka to ours and back."""

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from odradek.broker.testing import run_broker
from odradek.client.blocking import Admin, Consumer, Producer, TopicPartition
from tests.peers.jars import QUICK_JAVA, connect_jars
from tests.peers.kafka import RealKafka
from tests.programs import running

pytestmark = [pytest.mark.peers, pytest.mark.minutes]

PAGE: Final = Path(__file__).parents[2] / "docs" / "migrating.md"
PRINTED: Final = re.compile(r"^```properties\n(clusters = .*?)^```", re.MULTILINE | re.DOTALL)
WAY: Final = "kafka->odradek"
MIRROR_MAKER: Final = "org.apache.kafka.connect.mirror.MirrorMaker"
PLACES: Final = [TopicPartition("orders", number) for number in range(2)]
GROUP: Final = "packers"
VALUES: Final = [b"order %d" % number for number in range(20)]
WAIT_SECONDS: Final = 240.0


def fill(address: str) -> None:
    """Write records, one transaction that is aborted, and the offsets of a group at the end."""
    with Admin(address) as admin:
        admin.create_topic("orders", partitions=len(PLACES))
    with Producer(address, transactional_id="shop") as producer:
        for number, value in enumerate(VALUES):
            with producer.transaction() as transaction:
                transaction.send("orders", value, partition=number % len(PLACES))
        with producer.transaction() as transaction:
            transaction.send("orders", b"never", partition=0)
            transaction.flush()
            transaction.abort()
    with Consumer(address, group_id=GROUP) as consumer:
        consumer.commit(consumer.end_offsets(PLACES))


def values_of(address: str) -> list[bytes | None]:
    """Return the committed values, sorted; [] before the topic is there."""
    with Consumer(address) as consumer:
        if "orders" not in consumer.topics():
            return []
        consumer.assign(PLACES)
        ends = consumer.end_offsets(PLACES)
        found: list[bytes | None] = []
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += [record.value for record in consumer.poll(500)]
    return sorted(found, key=lambda value: value or b"")


def wait_until(look: Callable[[], object], wanted: object, log: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while (seen := look()) != wanted:
        assert time.monotonic() < deadline, f"still {seen}\n{log.read_text()[-8000:]}"
        time.sleep(0.5)  # between two looks


@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", [WAY, "odradek->kafka"])
def test_records_and_the_offsets_of_a_group_are_copied(way: str, tmp_path: Path) -> None:
    (printed,) = PRINTED.findall(PAGE.read_text())
    log, file = tmp_path / "said", tmp_path / "mirror.properties"
    with RealKafka() as kafka, run_broker() as broker, log.open("wb") as output:
        addresses = {"kafka": kafka.address, "odradek": broker.address}
        for name, address in addresses.items():
            assert f"{name}:9092" in printed
            printed = printed.replace(f"{name}:9092", address)
        name = way.partition("->")[0]
        printed = printed.replace(WAY, way).replace("kafka.consumer.", f"{name}.consumer.")
        file.write_text(printed)
        source, target = (addresses[name] for name in way.split("->"))
        fill(source)
        command = [*QUICK_JAVA, "-Xmx512m", "-cp", f"{connect_jars()}/*", MIRROR_MAKER]
        with running([*command, str(file)], stdout=output, stderr=subprocess.STDOUT):
            wait_until(lambda: values_of(target), sorted(VALUES), log)
            with Admin(target) as admin:
                wait_until(lambda: set(admin.committed(GROUP)), set(PLACES), log)
        with Producer(target) as producer:
            producer.send_and_wait("orders", b"of the new place", partition=0)
        with Consumer(target, group_id=GROUP) as consumer:
            consumer.subscribe("orders")
            assert [record.value for record in consumer.poll(60_000)] == [b"of the new place"]
