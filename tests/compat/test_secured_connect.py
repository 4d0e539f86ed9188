"""Kafka Connect over SCRAM and TLS, with the entries of docs/secured-clients.md.

A source writes each line of a file exactly once, over a kill of the worker and a new configuration,
and a sink copies what was committed. Without any of the entries the worker, or a task, names what
it lacks. A real Kafka asks for the same entries.
"""

import re
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest

from odradek.client.blocking import Acl, Admin, Consumer, TopicPartition
from tests.compat.connect import Worker, run_worker
from tests.entries_of_page import entries_of
from tests.peers.secured import ADMIN, SecuredAddress, run_kafka, run_ours

pytestmark = pytest.mark.peers

USER: Final = "connect"
ENTRIES: Final = entries_of("Kafka Connect", f"User:{USER}")
GROUP: Final = "etl"
SOURCE: Final = "lines"
"""The connector that reads a file, and the topic that it writes."""
SINK: Final = "copies"
FILES: Final = "org.apache.kafka.connect.file.FileStream"
BATCH: Final = 200
"""The lines of one transaction: more than the connector's buffer of 1 KiB has. When a batch is full
it leaves the lines behind in that buffer until the file grows."""
MANY: Final = 30 * BATCH
FEW: Final = 150
ERRORS: Final = {
    "topic": "TopicAuthorizationException",
    "group": "GroupAuthorizationException",
    "transactional_id": "TransactionalIdAuthorizationException",
}
"""Java's names of the refusals, by the resource."""
USUAL: Final = ("READ group etl", "WRITE transactional_id etl-lines-", "READ topic etl-offsets")
"""The entries that are taken away in every run; the others, and all at a real Kafka, at night."""


def named(entry: Acl) -> str:
    return f"{entry.operation.upper()} {entry.resource} {entry.name}"


@pytest.fixture(
    scope="module",
    params=[run_ours, pytest.param(run_kafka, marks=pytest.mark.minutes)],
    ids=["odradek", "kafka"],
)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredAddress]:
    users = {ADMIN: "word-of-admin", USER: "word-of-connect"}
    with request.param(users, tmp_path_factory.mktemp("secured")) as running:
        yield running


class Pipeline:
    """One worker and its connectors, with names of their own, and the entries without one."""

    def __init__(self, broker: SecuredAddress, place: Path, lacking: str = "") -> None:
        self._broker = broker
        self._place = place
        self._suffix = uuid.uuid4().hex[:8]
        self.lines, self.copy = place / "lines.txt", place / "copy.txt"
        self.topic = self._own(SOURCE)
        kept = [each for each in ENTRIES if named(each) != lacking]
        assert len(kept) == len(ENTRIES) - bool(lacking)
        with Admin(broker.address, **broker.options(ADMIN)) as admin:
            for name in ("configs", "offsets", "status"):
                topic = self._own(f"{GROUP}-{name}")
                admin.create_topic(topic, partitions=1, configs={"cleanup.policy": "compact"})
            admin.create_topic(self.topic, partitions=1)
            admin.create_acls([each._replace(name=self._own(each.name)) for each in kept])

    def _own(self, name: str) -> str:
        """Return a name of the page as one that no other test has."""
        return re.sub(f"{GROUP}|{SOURCE}|{SINK}", rf"\g<0>-{self._suffix}", name)

    def worker(self) -> AbstractContextManager[Worker]:
        return run_worker(self._place, self._own(GROUP), self._broker.properties(USER))

    def connectors(self) -> dict[str, dict[str, str]]:
        """Return the configurations of source and sink by their names."""
        return {
            self._own(SOURCE): {
                "connector.class": f"{FILES}SourceConnector",
                "file": str(self.lines),
                "topic": self.topic,
                "batch.size": f"{BATCH}",
                "exactly.once.support": "required",
            },
            self._own(SINK): {
                "connector.class": f"{FILES}SinkConnector",
                "file": str(self.copy),
                "topics": self.topic,
                "consumer.override.isolation.level": "read_committed",
            },
        }

    def add(self, lines: range) -> None:
        """Write lines to the file that the source reads."""
        with self.lines.open("a") as file:
            file.writelines(f"line {number}\n" for number in lines)

    def copied(self) -> bytes:
        """Return the file that the sink writes."""
        return self.copy.read_bytes() if self.copy.exists() else b""

    def written(self) -> list[bytes | None]:
        """Return the committed records of the topic."""
        place = TopicPartition(self.topic, 0)
        found: list[bytes | None] = []
        with Consumer(self._broker.address, **self._broker.options(ADMIN)) as consumer:
            (end,) = consumer.end_offsets([place]).values()
            consumer.assign([place])
            consumer.seek_to_beginning(place)
            while consumer.position(place) < end:
                found += [record.value for record in consumer.poll(500)]
        return found


@pytest.mark.timeout(600)
def test_each_line_is_written_once_over_a_kill_and_a_new_configuration(
    broker: SecuredAddress, tmp_path: Path
) -> None:
    pipeline = Pipeline(broker, tmp_path)
    ((source, reading), (sink, writing)) = pipeline.connectors().items()
    pipeline.add(range(MANY))
    with pipeline.worker() as worker:
        worker.wait_until(lambda: worker.takes(source, reading))
        worker.wait_until(lambda: bool(pipeline.written()))
        worker.kill()
    pipeline.add(range(MANY, MANY + FEW))
    count = MANY + 2 * FEW
    with pipeline.worker() as worker:
        worker.wait_until(lambda: len(pipeline.written()) >= MANY + FEW)
        # The worker fences the task before by its transactional id, and needs WRITE for that, too.
        worker.wait_until(lambda: worker.takes(source, {**reading, "batch.size": f"{2 * BATCH}"}))
        worker.wait_until(lambda: worker.takes(sink, writing))
        pipeline.add(range(MANY + FEW, count))
        worker.wait_until(lambda: len(pipeline.written()) >= count)
        worker.wait_until(lambda: pipeline.copied().count(b"\n") >= count)
    wanted = [b"line %d" % number for number in range(count)]
    assert pipeline.written() == wanted
    assert pipeline.copied().splitlines() == wanted


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(name, marks=() if name in USUAL else pytest.mark.minutes)
        for name in map(named, ENTRIES)
    ],
)
def test_without_an_entry_connect_names_what_it_lacks(
    broker: SecuredAddress, tmp_path: Path, entry: str
) -> None:
    pipeline = Pipeline(broker, tmp_path, lacking=entry)
    pipeline.add(range(FEW))
    waiting = pipeline.connectors()
    names = list(waiting)
    error = ERRORS[entry.split()[1]]

    with pipeline.worker() as worker:

        def is_named() -> bool:
            for name in list(waiting):
                if worker.takes(name, waiting[name]):
                    del waiting[name]
            return error in "".join([worker.log, *map(worker.status, names)])

        worker.wait_until(is_named)
