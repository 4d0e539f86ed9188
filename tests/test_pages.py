"""The pages for users: their links lead somewhere, and the samples of the README run."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.broker.testing import run_broker
from odradek.client.blocking import Consumer, Producer, TopicPartition
from tests.peers.postgres import run_postgres

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
LINK: Final = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)")
HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
PYTHON: Final = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ADDRESS: Final = "127.0.0.1:9092"
TWO_PHASES: Final = {"transaction.two.phase.commit.enable": "true"}
RUN_SECONDS: Final = 120.0


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


def test_the_samples_of_the_readme_run_in_their_order() -> None:
    samples = [
        one for one in PYTHON.findall((ROOT / "README.md").read_text()) if "pyspark" not in one
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
