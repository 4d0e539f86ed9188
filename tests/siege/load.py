"""The clients of a siege: `python -m tests.siege.load FILE`, inside the network of the cluster.

It writes, copies and reads until a line comes; then it comes to rest, judges what it did, and
prints the verdict. Each line that it prints is a JSON object: `progress`, or `verdict` at the end.
"""

import json
import random
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from odradek.client import blocking
from tests.checker.anomaly import Anomaly
from tests.checker.check import check
from tests.checker.history import Found, History, Outcome, Partition, Poll, Transaction
from tests.compat.agents import python_command
from tests.compat.confluent import transactional
from tests.compat.writers import Journal, write_with_confluent, write_with_our_client
from tests.siege.copying import Copier
from tests.siege.reading import (
    read_everything,
    read_with_confluent,
    read_with_our_client,
    unequal_ends,
)
from tests.siege.writing import (
    Pace,
    Sent,
    places,
    send_with_confluent,
    send_with_our_client,
    transact_with_agent,
)

LEDGER_PARTITIONS: Final = 3
SOURCE_PARTITIONS: Final = 2  # as in our_relay.py
BATCHES: Final = {"steady": 5, "bursts": 750}
"""The records of a transaction of the copiers of each source."""
PACES: Final = {"steady": Pace(records=2, seconds=0.5), "bursts": Pace(records=900, seconds=10.0)}
READERS: Final = {"reader-confluent": read_with_confluent, "reader-ours": read_with_our_client}
PROGRESS_SECONDS: Final = 10.0
SHOWN: Final = 20


class Load:
    """Writers, copiers and readers, and what is known of what they did."""

    def __init__(self, bootstrap: str, seed: int, java: Sequence[str], go: Sequence[str]) -> None:
        self.bootstrap = bootstrap
        self.ledger = places("ledger", LEDGER_PARTITIONS)
        self.writers = {
            "ours": write_with_our_client,
            "confluent": write_with_confluent,
            "java": transact_with_agent(java),
            "franz-go": transact_with_agent(go),
        }
        self.journals = [Journal(name, self.ledger) for name in self.writers]
        self.sent = [
            Sent(f"{source}-{library}", source, SOURCE_PARTITIONS)
            for source in BATCHES
            for library in ("ours", "confluent")
        ]
        commands = {
            "ours": [sys.executable, "-m", "tests.siege.our_relay"],
            "confluent": python_command("confluent"),
            "java": java,
            "franz-go": go,
        }
        names = list(commands)
        random.Random(seed).shuffle(names)
        self.copiers = [
            Copier(
                name=f"copier-{name}",
                command=commands[name],
                bootstrap=bootstrap,
                source=source,
                batch=BATCHES[source],
            )
            for name, source in zip(names, list(BATCHES) * 2, strict=True)
        ]
        self.polls: list[Poll] = []
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(20)
        self._running: list[Future[None]] = []

    def topics(self) -> dict[str, int]:
        """Return the partitions of each topic."""
        targets = dict.fromkeys((each.target for each in self.copiers), SOURCE_PARTITIONS)
        sources = dict.fromkeys(BATCHES, SOURCE_PARTITIONS)
        return {"ledger": LEDGER_PARTITIONS, **sources, **targets}

    def start(self) -> None:
        with blocking.Admin(self.bootstrap) as admin:
            for topic, partitions in self.topics().items():
                configs = {"min.insync.replicas": "2", "segment.bytes": "4194304"}
                admin.create_topic(
                    topic, partitions=partitions, replication_factor=3, configs=configs
                )
        for journal in self.journals:
            self._run(self.writers[journal.process], journal)
        for sent in self.sent:
            send = send_with_our_client if "ours" in sent.process else send_with_confluent
            self._run(send, sent, PACES[sent.topic])
        for read in READERS.values():
            self._run(read, self.ledger, self.polls)
        for copier in self.copiers:
            copier.start()

    def _run(self, task: Callable[..., None], *arguments: Any) -> None:
        self._running.append(self._threads.submit(task, self.bootstrap, *arguments, self._stop))

    def progress(self) -> dict[str, Any]:
        """Return what was done so far. Raises the error of a task that failed."""
        for task in self._running:
            if task.done():
                task.result()
        return {
            "committed": {
                **{each.process: each.committed for each in self.journals},
                **{each.name: each.transactions for each in self.copiers},
            },
            "acknowledged": {each.process: len(each.offsets) for each in self.sent},
            "polled": {
                reader: sum(poll.process == reader for poll in self.polls) for reader in READERS
            },
        }

    def verdict(self) -> dict[str, Any]:
        """Come to rest, read everything, and judge it."""
        self._stop.set()
        for task in self._running:
            task.result()
        while_besieged = self.progress()
        for journal in self.journals:  # a new instance ends the transaction of its predecessor
            transactional(self.bootstrap, journal.process)
        logs = {
            topic: read_everything(self.bootstrap, topic, SOURCE_PARTITIONS) for topic in BATCHES
        }
        finishing = [
            self._threads.submit(copier.finish, sum(map(len, logs[copier.source].values())))
            for copier in self.copiers
        ]
        for finished in finishing:
            finished.result()
        anomalies = [*self._judge_ledger(logs), *self._judge_copies(logs)]
        for topic, partitions in self.topics().items():
            for unequal in unequal_ends(self.bootstrap, topic, partitions):
                anomalies.append(Anomaly("stuck", unequal))
        outcomes = [each.outcome for journal in self.journals for each in journal.transactions]
        return {
            "while besieged": while_besieged,
            "records": sum(len(found) for log in logs.values() for found in log.values()),
            "outcomes": {each.name: outcomes.count(each) for each in Outcome},
            "refusals of copiers": {each.name: each.refusals[-5:] for each in self.copiers},
            "count": len(anomalies),
            "anomalies": [str(each) for each in anomalies[:SHOWN]],
        }

    def close(self) -> None:
        """End all tasks and agents."""
        self._stop.set()
        for copier in self.copiers:
            copier.close()

    def _judge_ledger(self, logs: dict[str, dict[Partition, list[Found]]]) -> list[Anomaly]:
        """Judge the transactions of the ledger and what was read of it on the way."""
        logs["ledger"] = read_everything(self.bootstrap, "ledger", LEDGER_PARTITIONS)
        place = blocking.TopicPartition(*self.ledger[0])
        with blocking.Consumer(self.bootstrap, group_id="ours") as reader:
            stored = reader.committed([place]).get(place)
        history = History(
            transactions=[each for journal in self.journals for each in journal.transactions],
            log=logs["ledger"],
            stored_offsets={"ours": None if stored is None else stored.offset},
            polls=self.polls,
        )
        return check(history)

    def _judge_copies(self, logs: dict[str, dict[Partition, list[Found]]]) -> list[Anomaly]:
        """Judge the sources, and that each copy has all records of its source once, in order."""
        found = []
        for source in BATCHES:
            sent = [each for each in self.sent if each.topic == source]
            transactions = [each for one in sent for each in one.as_transactions()]
            found += check(History(transactions=transactions, log=logs[source], stored_offsets={}))
        for copier in self.copiers:
            logs[copier.target] = read_everything(self.bootstrap, copier.target, SOURCE_PARTITIONS)
            found += check(self._copy(copier, logs))
        return found

    def _copy(self, copier: Copier, logs: dict[str, dict[Partition, list[Found]]]) -> History:
        """Return the history of a copier that has copied its whole source."""
        source = logs[copier.source]
        transactions = [
            Transaction(
                process=f"{copier.name}-{number}",
                outcome=Outcome.OK,
                sends=[((copier.target, number), value)],
            )
            for (_, number), records in source.items()
            for _, value in records
        ]
        with blocking.Consumer(self.bootstrap, group_id=copier.group) as reader:
            stored = reader.committed([blocking.TopicPartition(*place) for place in source])
        transactions += [
            Transaction(
                process=copier.name,
                outcome=Outcome.OK,
                sends=[],
                takes={(copier.group, place): (0, len(records))},
            )
            for place, records in source.items()
        ]
        offsets = {(copier.group, blocking_place(place)): at.offset for place, at in stored.items()}
        return History(
            transactions=transactions,
            log=logs[copier.target],
            stored_offsets={},
            group_offsets=offsets,
        )


def blocking_place(place: blocking.TopicPartition) -> Partition:
    return place.topic, place.partition


def say(kind: str, found: dict[str, Any]) -> None:
    print(json.dumps({kind: found}), flush=True)


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text())
    load = Load(given["bootstrap"], given["seed"], given["java"], given["go"])
    ended = threading.Event()

    def wait_for_a_line() -> None:
        sys.stdin.readline()
        ended.set()

    threading.Thread(target=wait_for_a_line, daemon=True).start()
    try:
        load.start()
        while not ended.wait(PROGRESS_SECONDS):
            say("progress", load.progress())
        say("verdict", load.verdict())
    finally:
        load.close()


if __name__ == "__main__":
    main()
