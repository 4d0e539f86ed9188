"""The pages for users: their links lead somewhere, and their samples run as they are printed."""

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.broker.testing import run_broker
from odradek.client.blocking import Consumer, ConsumerRecord, Producer, TopicPartition
from tests.client.live import Run
from tests.fakes.schema_registry import run_schema_registry
from tests.peers.postgres import run_postgres
from tests.programs import running

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
LINK: Final = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)")
HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
PYTHON: Final = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ADDRESS: Final = "127.0.0.1:9092"
TWO_PHASES: Final = {"transaction.two.phase.commit.enable": "true"}
RUN_SECONDS: Final = 120.0
QUICK_GROUPS: Final = {"group.consumer.min.heartbeat.interval.ms": "100"}


ELSEWHERE: Final = {
    "coming-from-spark.md": "tests/spark/test_samples.py",
    "services.md": "tests/test_services_page.py",
    "security.md": "tests/test_security_page.py",
    "see-exactly-once.md": "tests/test_see_exactly_once.py",
}
"""The tests of pages whose samples need more than a broker. Those of other pages run here."""
TRIED: Final = {
    "README.md": 7,
    "coming-from-spark.md": 5,
    "coming-from.md": 1,
    "groups.md": 4,
    "quotas.md": 1,
    "patterns.md": 4,
    "schemas.md": 1,
    "security.md": 5,
    "see-exactly-once.md": 1,
    "services.md": 9,
    "transactions.md": 4,
}
"""The number of samples of each page that have a test."""


def anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_inside_the_project_leads_somewhere(page: Path) -> None:
    for target, part in LINK.findall(page.read_text()):
        path = page.parent / target if target else page
        assert path.exists(), target
        if part:
            assert part in [anchor(one) for one in HEADING.findall(path.read_text())], part


def test_the_first_link_of_the_readme_is_the_page_that_teaches() -> None:
    found = LINK.search((ROOT / "README.md").read_text())
    assert found is not None
    assert found[1] == "docs/see-exactly-once.md"


def test_the_glossary_has_the_words_of_transactions() -> None:
    headings = {one.lower() for one in HEADING.findall((ROOT / "docs" / "glossary.md").read_text())}
    assert headings >= {
        *("last stable offset", "high watermark", "producer id and epoch", "fencing", "marker"),
        *("coordinator", "generation", "read_committed"),
    }
    assert "glossary.md" in (ROOT / "docs" / "transactions.md").read_text()


def samples_of(page: str) -> list[str]:
    return PYTHON.findall((ROOT / "docs" / page).read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_samples_of_a_page_have_a_test(page: Path) -> None:
    """Samples of some pages had no imports, and nobody ran them."""
    count = len(PYTHON.findall(page.read_text()))
    assert count == TRIED.get(page.name, 0), "give a new sample a test, and count it"
    if count:
        test = ROOT / ELSEWHERE.get(page.name, "tests/test_pages.py")
        assert page.name in test.read_text(), f"{test} does not run the samples"


def test_the_samples_of_the_readme_run_in_their_order() -> None:
    samples = [
        one
        for one in PYTHON.findall((ROOT / "README.md").read_text())
        if "pyspark" not in one and "def test_" not in one
    ]
    assert len(samples) == 5
    with run_broker() as broker:
        for sample in samples:
            assert ADDRESS in sample
            subprocess.run(
                [sys.executable, "-c", sample.replace(ADDRESS, broker.address)],
                check=True,
                timeout=RUN_SECONDS,
            )


def test_the_samples_of_quotas_run() -> None:
    page = (ROOT / "docs" / "quotas.md").read_text()
    [sample] = PYTHON.findall(page)
    commands = [line.split() for line in page.splitlines() if line.startswith("    odradek quota")]
    with run_broker() as broker:
        ran = subprocess.run(
            [sys.executable, "-c", sample.replace(ADDRESS, broker.address)],
            check=True,
            timeout=RUN_SECONDS,
            capture_output=True,
            text=True,
        )
        assert ran.stdout.splitlines() == [
            "None  {'request_percentage': 20.0}",
            "alice None {'producer_byte_rate': 1000000.0}",
        ]
        run = Run(broker.address)
        for _, *words in commands:
            run.said(*words)
        assert len(commands) == 8
        left = run.said("quota", "list")
    assert ["alice", "nightly", "producer_byte_rate", "102400"] in map(str.split, left.splitlines())
    assert "10.0.0.7" not in left


def test_the_samples_of_consumer_groups_run() -> None:
    _, keys_and_values, *exactly_once = PYTHON.findall((ROOT / "docs" / "groups.md").read_text())
    with run_broker() as broker:
        subprocess.run(
            [sys.executable, "-c", keys_and_values.replace(ADDRESS, broker.address)],
            check=True,
            timeout=RUN_SECONDS,
        )
        in_threads, with_asyncio = (
            one.replace(ADDRESS, broker.address).replace('"shouters"', f'"shouters-{place}"')
            for place, one in enumerate(exactly_once)
        )
        with Producer(broker.address) as producer:
            producer.send("greetings", b"good evening", partition=0)
            numbers = range(producer.partitions_for("greetings"))
        places = [TopicPartition("greetings", number) for number in numbers]
        for group, given, run in (
            ("shouters-0", in_threads, lambda returned: returned),
            ("shouters-1", with_asyncio, asyncio.run),
        ):
            sample: dict[str, Any] = {}
            exec(given, sample)
            with Consumer(broker.address, group_id=group) as onlooker:

                def is_over(onlooker: Consumer = onlooker) -> bool:
                    return sum(stored.offset for stored in onlooker.committed(places).values()) > 0

                run(sample["shout"](group, is_over))
        with Consumer(broker.address) as reader:
            reader.assign([("shouts", number) for number in reader.partitions_for("shouts")])
            found: list[bytes | None] = []
            while len(found) < 2:
                found += [record.value for record in reader.poll(60_000)]
            assert found == [b"GOOD EVENING"] * 2


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a broker for the samples that need nothing else."""
    with run_broker(config=QUICK_GROUPS) as broker:
        yield broker.address


class Pattern:
    """A sample of docs/patterns.md, with names of its own for its topics, groups and ids."""

    def __init__(self, number: int, topic: str, address: str) -> None:
        text = PYTHON.findall((ROOT / "docs" / "patterns.md").read_text())[number]
        assert ADDRESS in text
        self.names: dict[str, Any] = {}
        exec(text.replace(ADDRESS, address).replace('"orders', f'"{topic}'), self.names)
        self.address = address

    def values(self, topic: str) -> list[bytes | None]:
        return values_of(self.address, topic)

    def until(self, count: int, *topics: str) -> Callable[[], bool]:
        """Return a function that returns True when the topics have `count` records."""
        return lambda: sum(len(self.values(topic)) for topic in topics) >= count


def values_of(address: str, topic: str) -> list[bytes | None]:
    """Return the committed values of a topic, sorted; [] if it is not there."""
    with Consumer(address) as consumer:
        if topic not in consumer.topics():
            return []
        places = [TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        found: list[bytes | None] = []
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += [record.value for record in consumer.poll(500)]
    return sorted(found, key=lambda value: value or b"")


def give(address: str, topic: str, *orders: bytes) -> None:
    """Send orders, one of them to each partition in turn."""
    with Producer(address) as producer:
        count = producer.partitions_for(topic)
        for number, order in enumerate(orders):
            producer.send(topic, order, key=b"k", partition=number % count)


def pack(record: ConsumerRecord) -> bytes:
    """Process a record as a program would. It fails for good if the order is `broken`."""
    assert record.value is not None
    if record.value.endswith(b"broken"):
        raise ValueError("no such item")
    return record.value.upper()


def test_the_worker_with_retries_and_the_replay_of_dead_letters_run(address: str) -> None:
    calls: list[bytes | None] = []

    def process(record: ConsumerRecord) -> bytes:
        calls.append(record.value)
        if record.value == b"1 slow" and calls.count(b"1 slow") < 3:
            raise TimeoutError("the service is away")
        return pack(record)

    give(address, "first", b"1 spool", b"1 broken", b"1 slow")
    worker = Pattern(0, "first", address)
    worker.names["PAUSE_S"] = 0.001
    worker.names["work"](process, worker.until(3, "parcels", "first-dead"))
    assert worker.values("parcels") == [b"1 SLOW", b"1 SPOOL"]
    assert worker.values("first-dead") == [b"1 broken"]
    assert calls.count(b"1 broken") == 3
    replay = Pattern(3, "first", address)
    asyncio.run(replay.names["send_back"](replay.until(4, "first")))
    assert replay.values("first").count(b"1 broken") == 2


def test_the_worker_with_back_off_topics_runs(address: str) -> None:
    """Each record is tried three times, later and later, while the others go on."""
    calls: list[tuple[str, bytes | None]] = []

    def process(record: ConsumerRecord) -> bytes:
        calls.append((record.topic, record.value))
        if record.value == b"2 slow" and record.topic == "second":
            raise TimeoutError("the service is away")
        return pack(record)

    worker = Pattern(1, "second", address)
    worker.names["DELAYS_MS"][:] = [100, 200]
    with Producer(address) as producer:
        for topic in worker.names["RETRY_TOPICS"]:
            producer.partitions_for(topic)
        before = len(worker.values("parcels"))
    give(address, "second", b"2 broken", b"2 slow", b"2 spool")
    started = worker.names["now_ms"]()
    worker.names["work"](process, worker.until(before + 3, "parcels", "second-dead"))
    assert worker.names["now_ms"]() - started >= 300
    assert worker.values("parcels")[before:] == [b"2 SLOW", b"2 SPOOL"]
    assert worker.values("second-dead") == [b"2 broken"]
    tried = {order: [topic for topic, value in calls if value == order] for _, order in calls}
    assert tried == {
        b"2 broken": ["second", "second-retry-1", "second-retry-2"],
        b"2 slow": ["second", "second-retry-1"],
        b"2 spool": ["second"],
    }


def test_the_reader_that_sets_poison_records_aside_runs(address: str) -> None:
    give(address, "third", b'{"item": "spool"}', b"\xff", b'{"item": "thread"}')
    reader = Pattern(2, "third", address)
    reader.names["work"](reader.until(3, "items", "third-dead"))
    assert reader.values("items") == [b'"spool"', b'"thread"']
    assert reader.values("third-dead") == [b"\xff"]


def test_a_member_that_runs_without_end_prints_what_comes(address: str) -> None:
    sample = samples_of("groups.md")[0].replace(ADDRESS, address)
    assert address in sample
    give(address, "greetings", b"guten Tag")
    with running([sys.executable, "-u", "-c", sample], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "b'guten Tag'\n"


def test_the_samples_of_reading_in_commit_order_run(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, copying = (one for one in samples_of("transactions.md") if 'order="commit"' in one)
    give(address, "payments", b"ada pays bob 5")
    exec(reading.replace(ADDRESS, address), {})
    assert capsys.readouterr().out == "None b'ada pays bob 5'\n"
    exec(copying.replace(ADDRESS, address), {})
    assert values_of(address, "ledger") == [b"ada pays bob 5"]


def test_the_sample_of_transaction_groups_runs(address: str) -> None:
    (sample,) = (one for one in samples_of("transactions.md") if "TransactionGroup" in one)
    exec(sample.replace(ADDRESS, address), {})
    # The decision is durable when `commit` returns; the markers that end the members follow.
    limit = time.monotonic() + RUN_SECONDS
    while len(found := values_of(address, "orders")) < 2 and time.monotonic() < limit:
        time.sleep(0.05)
    assert found == [b"a spool, from task-7", b"a spool, from task-8"]


def test_the_sample_of_the_log_shows_the_life_of_a_client(address: str) -> None:
    (sample,) = samples_of("coming-from.md")
    program = f"""{sample}
from odradek.client.blocking import Producer
with Producer({address!r}, transactional_id="logged", client_id="worker-5") as producer:
    with producer.transaction() as txn:
        txn.send("logged", b"x")
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        timeout=RUN_SECONDS,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "worker-5: began the transaction of 'logged'\n" in ended.stderr
    assert "worker-5: committed the transaction of 'logged'\n" in ended.stderr


def test_the_sample_of_schemas_runs(address: str) -> None:
    (sample,) = PYTHON.findall((ROOT / "docs" / "schemas.md").read_text())
    with run_schema_registry() as registry:
        given = sample.replace(ADDRESS, address).replace("http://127.0.0.1:8081", registry.url)
        assert registry.url in given
        ended = subprocess.run(
            [sys.executable, "-c", given.replace('"orders"', '"orders-with-schemas"')],
            check=True,
            timeout=RUN_SECONDS,
            capture_output=True,
            text=True,
        )
    assert ended.stdout == "{'item': 'spool', 'count': 3}\n"


def test_the_sample_of_one_commit_with_postgresql_runs() -> None:
    (sample,) = [
        one
        for one in PYTHON.findall((ROOT / "docs" / "transactions.md").read_text())
        if "postgres" in one
    ]
    with run_broker(config=TWO_PHASES) as broker, run_postgres() as server:
        server.ask("CREATE TABLE accounts (name text, balance int)")
        server.ask("INSERT INTO accounts VALUES ('ada', 10), ('bob', 0)")
        given = sample.replace(ADDRESS, broker.address).replace("dbname=shop", server.conninfo)
        assert given.count(broker.address) == given.count(server.conninfo) == 1
        subprocess.run([sys.executable, "-c", given], check=True, timeout=RUN_SECONDS)
        balances = server.ask("SELECT * FROM accounts ORDER BY name")
        assert balances == [("ada", 5), ("bob", 5)]
