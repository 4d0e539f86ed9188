"""The page of a real broker with 10,000 partitions and 1,000 open transactions.

What it costs is counted in requests, memory and processor time: these are the same on a busy
machine. It takes minutes, most of them to make the partitions.
"""

import os
import re
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from odradek.broker.testing import RunningBroker, run_broker
from odradek.client import Admin, TopicPartition
from odradek.client.cluster.cluster import TRANSACTION, Cluster
from odradek.client.config import ClientConfig
from odradek.protocol.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.protocol.apis.txn import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.record import Record, encode_batch
from tests.client.web.browser import chromium, window
from tests.client.web.pages import served_page
from tests.peers.kafka import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.minutes]

Rows = dict[tuple[str, str], Any]
TOPICS: Final = 100
PARTITIONS: Final = 100
"""Of each topic."""
OPEN: Final = 1_000
TIMEOUT_MS: Final = 900_000
AT_ONCE: Final = 20
TV2_PRODUCE: Final = 12
OBSERVED_SECONDS: Final = 10.0
REQUESTS_PER_SECOND: Final = 25
"""Some twice of what was seen. One for each partition that waits would be a thousand."""
PROCESSOR_MAX: Final = 0.4
"""The part of a core of the broker that the page may take."""
MEMORY_MAX_MIB: Final = 150
LONGEST_TASK_MS: Final = 2_000
REQUESTS: Final = re.compile(
    r'^kafka_network_requestmetrics_requests_total\{of="clients",.*\} (\S+)$', re.MULTILINE
)
NOTE_LONG_TASKS: Final = """
    window.longTasks = [];
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) window.longTasks.push(entry.duration);
    }).observe({ entryTypes: ["longtask"] });
"""


class MeasuredBroker(RunningBroker):
    """A broker with metrics."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        (self._metrics_port,) = free_ports(1)

    @property
    def listening(self) -> Sequence[str]:
        return (*super().listening, "--metrics-listen", f"127.0.0.1:{self._metrics_port}")

    @property
    def request_count(self) -> float:
        """The requests of clients so far."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics") as answer:
            return sum(map(float, REQUESTS.findall(answer.read().decode())))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeasuredBroker]:
    directory: Path = tmp_path_factory.mktemp("many")
    with run_broker(data_dir=directory, kind=MeasuredBroker) as running:
        assert isinstance(running, MeasuredBroker)
        trio.run(fill, running.address)
        yield running


async def fill(bootstrap: str) -> None:
    """Make the topics, and leave the transactions open: each has five records in a partition."""
    async with Admin(bootstrap) as admin:
        for number in range(TOPICS):
            await admin.create_topic(f"t-{number}", partitions=PARTITIONS)
    limit = trio.CapacityLimiter(AT_ONCE)
    async with Cluster(bootstrap, ClientConfig()) as cluster, trio.open_nursery() as nursery:
        (node_id,) = await cluster.leaders([TopicPartition("t-0", 0)])
        for number in range(OPEN):
            nursery.start_soon(leave_open, cluster, node_id, number, limit)


async def leave_open(
    cluster: Cluster, node_id: int, number: int, limit: trio.CapacityLimiter
) -> None:
    name = f"task-{number:04}"
    async with limit:
        question = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=TIMEOUT_MS, producer_id=-1
        )

        async def begin() -> InitProducerIdResponse:
            answer = await cluster.ask_coordinator(TRANSACTION, name, INIT_PRODUCER_ID, question)
            cluster.check(answer.error_code, "beginning")
            return answer

        answer = await cluster.retrying("beginning", begin)
        records = encode_batch(
            [Record(key=None, value=b"x", timestamp_ms=ClientConfig().wall_ms())] * 5,
            producer_id=answer.producer_id,
            producer_epoch=answer.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        place = PartitionProduceData(index=number // TOPICS, records=memoryview(records))
        topic = TopicProduceData(name=f"t-{number % TOPICS}", partition_data=(place,))
        request = ProduceRequest(
            transactional_id=name, acks=-1, timeout_ms=10_000, topic_data=(topic,)
        )
        produced = await cluster.ask(node_id, PRODUCE, request, at_most=TV2_PRODUCE)
        assert produced.responses[0].partition_responses[0].error_code == 0


def memory_mib(process_id: int) -> int:
    """Return the most memory that a process has had."""
    status = Path(f"/proc/{process_id}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) // 1024


def processor_seconds(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_filled(rows: Rows) -> bool:
    """Return True if all partitions and transactions are there, and what each holds back."""
    return (
        rows.get(("cluster", ""), {}).get("partition_count", 0) >= TOPICS * PARTITIONS
        and rows.get(("count", "transactions"), {}).get("open") == OPEN
        and sum(section == "pin" for section, _ in rows) == OPEN
    )


def test_the_page_of_many_partitions_and_transactions_costs_little_and_can_be_looked_through(
    broker: MeasuredBroker,
) -> None:
    with served_page(broker.address) as page:
        began = time.monotonic()
        page.rows_until(is_filled)
        print(f"everything is on the page after {time.monotonic() - began:.1f} s")
        began, count = time.monotonic(), broker.request_count
        spent = processor_seconds(broker.process.pid)
        while time.monotonic() < began + OBSERVED_SECONDS:
            time.sleep(0.5)
        spent = processor_seconds(broker.process.pid) - spent
        count = broker.request_count - count
        seconds = time.monotonic() - began
        print(f"{count / seconds:.1f} requests and {spent / seconds:.3f} s of processor a second")
        assert OBSERVED_SECONDS / 2 < count < REQUESTS_PER_SECOND * seconds
        assert spent < PROCESSOR_MAX * seconds
        with chromium() as browser, window(browser) as opened:
            opened.page.add_init_script(NOTE_LONG_TASKS)
            began = time.monotonic()
            opened.show(page.link)
            opened.wait_text(".figures", "1,000 open of 1,000 transactional ids")
            opened.wait_text(".pin", "task-")
            print(f"a browser shows it after {time.monotonic() - began:.1f} s")
            opened.page.get_by_label("Find").fill("task-0777")
            opened.page.locator(".lane").nth(1).wait_for(state="detached")
            opened.wait_text(".lane", "task-0777")
            opened.page.goto(f"{page.link}#replicas")
            opened.wait_text(".figures", "partitions of 101 topics · all in sync")
            longest = opened.page.evaluate("Math.max(0, ...window.longTasks)")
            print(f"its longest task takes {longest:.0f} ms")
            assert longest < LONGEST_TASK_MS
        memory = memory_mib(page.process.pid)
        print(f"the process of the page has had {memory} MiB")
        assert memory < MEMORY_MAX_MIB
