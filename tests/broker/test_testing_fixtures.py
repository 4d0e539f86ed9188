"""The fixtures for other projects' tests, in a pytest of its own."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SAMPLE: Final = re.compile(r"^```python\n([^`]*def test_[^`]*)^```", re.MULTILINE)
CONFTEST: Final = """
import pytest

pytest_plugins = ["odradek.broker.testing"]

@pytest.fixture(scope="session")
def odradek_broker_config():
    return {"num.partitions": "7"}
"""
SECURED: Final = """
from odradek.client.blocking import Acl, Admin, Producer

def test_a_user_writes(odradek_secured_broker):
    broker = odradek_secured_broker
    with Admin(broker.address, **broker.options("admin")) as admin:
        admin.create_topic("t", partitions=1)
        admin.create_acls([Acl("topic", "t", "User:alice", "write")])
    with Producer(broker.address, **broker.options("alice")) as producer:
        assert producer.send("t", b"x").result().partition == 0
"""
TESTS: Final = """
from pathlib import Path

import pytest
from odradek.client.blocking import Consumer, Producer

@pytest.mark.parametrize("number", range(3))
def test_a_topic_is_empty(number, odradek_session_broker, odradek_new_topic):
    address = odradek_session_broker.address
    topic = odradek_new_topic("orders", partitions=2)
    with Producer(address) as producer:
        assert producer.partitions_for(topic) == 2
        producer.send(topic, b"%d" % number, partition=1)
        assert producer.partitions_for("made-by-itself") == 7
    with Consumer(address, group_id=topic) as consumer:
        consumer.subscribe(topic)
        assert [record.value for record in consumer.poll(60_000)] == [b"%d" % number]
    with Path("brokers").open("a") as brokers:
        brokers.write(address + "\\n")
"""


@pytest.mark.slow
def test_tests_of_a_worker_share_a_broker_and_each_has_topics_of_its_own(tmp_path: Path) -> None:
    """There was a broker for each test only: a second for each. The README's sample runs, too."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_mine.py").write_text(TESTS)
    (sample,) = SAMPLE.findall((ROOT / "README.md").read_text())
    (tmp_path / "test_of_the_readme.py").write_text(sample)
    (tmp_path / "test_secured.py").write_text(SECURED)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "xdist", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={
            "PYTHONPATH": str(ROOT / ".ns"),
            "PATH": "/usr/bin:/bin",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stdout
    assert "5 passed" in ended.stdout
    brokers = (tmp_path / "brokers").read_text().split()
    assert len(brokers) == 3
    assert len(set(brokers)) <= 2, "one for each worker"


def test_the_plugin_imports_no_client_before_a_test_asks_for_a_topic() -> None:
    loaded = "sorted(name for name in sys.modules if name.startswith(('odradek', 'trio')))"
    said = subprocess.run(
        [sys.executable, "-c", f"import sys, odradek.broker.testing; print({loaded})"],
        env={"PYTHONPATH": str(ROOT / ".ns"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.strip() == "['odradek', 'odradek.broker', 'odradek.broker.testing']"
