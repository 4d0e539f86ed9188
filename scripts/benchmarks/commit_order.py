"""Reading in commit order beside reading in the order of offsets, and the memory while it spills.

The topic has transactions of 500 records, of which one in a hundred stays open until all is
written. A process reads it all in each order. For the memory, one transaction has a gigabyte: a
process reads the topic while that is open, and notes how much its resident memory has grown.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from odradek.client.blocking import Consumer, Producer, TopicPartition
from scripts.benchmarks.figures import Figure, Floor
from scripts.benchmarks.load import new_topic
from scripts.benchmarks.process import MIB
from scripts.benchmarks.targets import Target

FAMILY: Final = "order"
RECORDS: Final = 1_000_000
QUICK_RECORDS: Final = 50_000
IN_A_TRANSACTION: Final = 500
OPEN: Final = 100
"""One transaction in so many stays open."""
SIZE_BYTES: Final = 100
RATIO_MIN: Final = 0.7
SPILLED_BYTES: Final = 1 << 30
QUICK_SPILLED_BYTES: Final = 128 << 20
SPILLED_SIZE_BYTES: Final = 10_000
ROUNDS: Final = 3
GIVE_UP_SECONDS: Final = 600


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    with target.running() as address:
        count = QUICK_RECORDS if quick else RECORDS
        topic = write_transactions(address, count)
        rates: dict[str, list[float]] = {"offset": [], "commit": []}
        for _ in range(1 if quick else ROUNDS):
            for order, found in rates.items():
                found.append(count / _read(address, topic, order, count)["seconds"])
        best = {order: max(found) for order, found in rates.items()}
        for order, rate in best.items():
            yield Figure(family=FAMILY, name=f"read in {order} order", value=rate, unit="records/s")
        yield Figure(
            family=FAMILY,
            name="commit order to offset order, 1 % open transactions",
            value=best["commit"] / best["offset"],
            unit="times",
            floor=Floor(limit=RATIO_MIN, at_least=True),
        )
        size_bytes = QUICK_SPILLED_BYTES if quick else SPILLED_BYTES
        grown = _spilled(address, size_bytes)
        yield Figure(
            family=FAMILY,
            name=f"memory of the reader beyond its start, {size_bytes // MIB} MiB spilled",
            value=grown,
            unit="MiB",
        )


def write_transactions(address: str, count: int) -> str:
    """Write `count` records in transactions, of which some stay open until the others are done."""
    topic = new_topic(address, "order", partitions=1)
    value = b"x" * SIZE_BYTES
    with ExitStack() as until_the_end:
        producer = until_the_end.enter_context(Producer(address, transactional_id=f"{topic}-w"))
        for number in range(count // IN_A_TRANSACTION):
            stays_open = number % OPEN == 0
            writer = producer
            if stays_open:
                writer = until_the_end.enter_context(
                    Producer(address, transactional_id=f"{topic}-{number}")
                )
            transaction = writer.transaction()
            if stays_open:
                until_the_end.enter_context(transaction)
            else:
                transaction.__enter__()
            for _ in range(IN_A_TRANSACTION):
                transaction.send(topic, value, partition=0)
            if stays_open:
                transaction.flush()
            else:
                transaction.__exit__(None, None, None)
    return topic


def _spilled(address: str, size_bytes: int) -> float:
    """Return the MiB by which a reader grows while it keeps an open transaction of this size."""
    topic = new_topic(address, "spilled", partitions=1)
    value = b"x" * SPILLED_SIZE_BYTES
    count = size_bytes // SPILLED_SIZE_BYTES
    with (
        Producer(
            address,
            transactional_id=f"{topic}-large",
            transaction_timeout_ms=GIVE_UP_SECONDS * 1_000,
        ) as writer,
        writer.transaction() as transaction,
        Producer(address) as plain,
    ):
        for _ in range(count):
            transaction.send(topic, value, partition=0)
        transaction.flush()
        plain.send(topic, b"the end", partition=0)
        plain.flush()
        return _read(address, topic, "commit", 1)["grown_mib"]


def _read(address: str, topic: str, order: str, count: int) -> dict[str, float]:
    """Return what a process found that read `count` records in this order."""
    ended = subprocess.run(
        [sys.executable, "-m", __name__, address, topic, order, str(count)],
        stdout=subprocess.PIPE,
        timeout=GIVE_UP_SECONDS,
        check=True,
    )
    found: dict[str, float] = json.loads(ended.stdout)
    return found


def _resident_mib(name: str) -> float:
    """Return a line of /proc/self/status in MiB: VmRSS is now, VmHWM the most so far."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
    raise LookupError(name)


def main(address: str, topic: str, order: str, count: str) -> None:
    """Read, and print what it took."""
    assert order in ("offset", "commit")
    with Consumer(address, order="commit" if order == "commit" else "offset") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.partitions_for(topic)
        before, began, left = _resident_mib("VmRSS"), time.perf_counter(), int(count)
        while left > 0:
            left -= len(consumer.poll(10_000))
        seconds = time.perf_counter() - began
        grown = _resident_mib("VmHWM") - before
    print(json.dumps({"seconds": seconds, "grown_mib": grown}))


if __name__ == "__main__":
    main(*sys.argv[1:])
