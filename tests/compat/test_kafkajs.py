"""KafkaJS, unmodified: a relay in transactions, as a member of a group."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.compat.confluent import deliver, producer, read
from tests.compat.conftest import DEADLINE_SECONDS, CreateTopic

pytestmark = [pytest.mark.peers, pytest.mark.minutes]

SOURCES: Final = Path(__file__).parent / "js"
INSTALL_TIMEOUT_SECONDS: Final = 300
PARTITIONS: Final = 2
IN_EACH: Final = 30


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the relay. npm brings KafkaJS."""
    if shutil.which("npm") is None:
        pytest.skip("Not found: npm. KafkaJS needs Node.js (https://nodejs.org).")
    directory = tmp_path_factory.mktemp("kafkajs")
    for name in ("package.json", "package-lock.json", "relay.js"):
        shutil.copy(SOURCES / name, directory)
    subprocess.run(
        ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
        cwd=directory,
        check=True,
        capture_output=True,
        timeout=INSTALL_TIMEOUT_SECONDS,
    )
    return ["node", str(directory / "relay.js")]


def test_a_relay_in_transactions(
    bootstrap: str,
    create_topic: CreateTopic,
    unique: Callable[[str], str],
    program: list[str],
) -> None:
    source, target = create_topic(partitions=PARTITIONS), create_topic(partitions=PARTITIONS)
    sender = producer(bootstrap)
    for partition in range(PARTITIONS):
        values = [b"%d-%d" % (partition, number) for number in range(IN_EACH)]
        deliver(sender, source, values, partition=partition)
    count = PARTITIONS * IN_EACH
    finished = subprocess.run(
        [*program, bootstrap, unique("id"), unique("group"), source, target, str(count)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        env={**os.environ, "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    committed, aborted = map(int, finished.stdout.splitlines()[-1].split()[1:])
    assert aborted >= committed // 3 > 0
    found = read(bootstrap, target, count=count, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        copied = [record.value for record in found if record.partition == partition]
        assert copied == [b"%d-%d" % (partition, number) for number in range(IN_EACH)]
