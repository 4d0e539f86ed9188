"""kcat 1.7.1 over SASL_SSL with the least rights: a transaction, a group, each right missing.

Debian 12 builds it with librdkafka 2.0.2, whose SCRAM no broker accepts that compares nonces as a
whole (Kafka since CVE-2024-56128). So its users have PLAIN here.

kcat has one transaction for all that it reads from its standard input, and sends no offsets with
it. So a member of a group and a transaction are two commands here.
"""

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

from tests.compat.conftest import DEADLINE_SECONDS
from tests.compat.least_rights import MECHANISM, VALUES, Application, Secured, deployed, run_secured
from tests.conftest import found_or_skipped
from tests.peers.kcat import kcat_command

pytestmark = pytest.mark.peers

LINES: Final = b"".join(value + b"\n" for value in VALUES)
Words = Callable[[Application], list[str]]


def write(application: Application) -> list[str]:
    return ["-P", "-t", application.target]


def write_transaction(application: Application) -> list[str]:
    return [*write(application), "-X", f"transactional.id={application.transactional_id}"]


def read(application: Application) -> list[str]:
    return ["-C", "-e", "-o", "beginning", "-t", application.source]


def read_as_member(application: Application) -> list[str]:
    return ["-G", application.group, "-c", str(len(VALUES)), application.source]


LEARNT: Final[Mapping[str, tuple[Words, str]]] = {
    "READ source": (read, "Topic authorization failed"),
    "WRITE target": (write, "Topic authorization failed"),
    "READ group": (read_as_member, "Group authorization failed"),
    "WRITE id": (write_transaction, "Transactional Id authorization failed"),
}
"""The command that needs a right, and what it writes to its standard error without it."""


USERS: Final = {right: f"kcat-{number}" for number, right in enumerate(("", *LEARNT))}
"""The users, by the right that they have not."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with run_secured(tmp_path_factory.mktemp("certificates"), *USERS.values()) as running:
        yield running


@pytest.fixture(scope="module")
def kcat() -> list[str]:
    return found_or_skipped(kcat_command)


def run(
    command: list[str],
    secured: Secured,
    application: Application,
    directory: Path,
    words: Words,
    mechanism: str = "PLAIN",
) -> subprocess.CompletedProcess[bytes]:
    """Run kcat as the application's user. Its password is in a file."""
    given = {
        "bootstrap.servers": secured.address,
        "auto.offset.reset": "earliest",
        **secured.librdkafka(application.user),
        "sasl.mechanism": mechanism,
    }
    settings = directory / "kcat.conf"
    settings.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    return subprocess.run(
        [*command, "-F", str(settings), *words(application)],
        input=LINES,
        capture_output=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


def test_with_what_it_needs_kcat_writes_a_transaction_and_reads_as_a_member(
    secured: Secured, kcat: list[str], tmp_path: Path
) -> None:
    application = deployed(secured, name=USERS[""])
    written = run(kcat, secured, application, tmp_path, write_transaction)
    assert written.returncode == 0, written.stderr
    assert secured.values(application.target, len(VALUES)) == [*VALUES]
    found = run(kcat, secured, application, tmp_path, read_as_member)
    assert (found.returncode, found.stdout) == (0, LINES), found.stderr
    admin = secured.admin
    asked = ConsumerGroupTopicPartitions(application.group)
    [answer] = admin.list_consumer_group_offsets([asked]).values()
    [stored] = answer.result(DEADLINE_SECONDS).topic_partitions
    assert (stored.topic, stored.offset) == (application.source, len(VALUES))


@pytest.mark.parametrize("right", LEARNT)
def test_without_a_right_kcat_says_which(
    secured: Secured, kcat: list[str], tmp_path: Path, right: str
) -> None:
    application = deployed(secured, but=right, name=USERS[right])
    words, said = LEARNT[right]
    refused = run(kcat, secured, application, tmp_path, words)
    assert refused.returncode != 0, refused
    assert said in refused.stderr.decode()
    assert refused.stdout == b""
    assert secured.values(application.target, 0) == []


def test_scram_of_an_old_librdkafka_is_refused_and_the_log_says_why(
    secured: Secured, kcat: list[str], tmp_path: Path
) -> None:
    version = subprocess.run([*kcat, "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", version)
    assert found is not None, version
    is_old = tuple(map(int, found.groups())) < (2, 6, 1)
    application = deployed(secured)
    done = run(kcat, secured, application, tmp_path, read, MECHANISM)
    assert (done.returncode != 0) == is_old, done
    why = "its nonce stands twice in it, a fault of librdkafka before 2.6.1: update the client"
    assert (why in secured.broker.log) == is_old
