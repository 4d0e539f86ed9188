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
from tests.siege.at_least_once import check_copied
from tests.siege.copying import Copier
from tests.siege.reading import (
    read_everything,
    read_with_confluent,
    read_with_our_client,
    unequal_ends,
)
from tests.siege.sharing import SharingGroup
from tests.siege.writing import (
    Pace,
    Sent,
    places,
    send_with_confluent,
    send_with_our_client,
    transact_with_agent,
)

LEDGER_PARTITIONS: Final = 3
SOURCES: Final = {"steady": 2, "bursts": 2, "shared": 6}
"""The partitions of each source. The members of groups copy the last."""
BATCHES: Final = {"steady": 5, "bursts": 750, "shared": 5}
"""The records of a transaction of the copiers of each source."""
PACES: Final = {
    "steady": Pace(records=2, seconds=0.5),
    "bursts": Pace(records=900, seconds=10.0),
    "shared": Pace(records=3, seconds=0.5),
}
GROUPS: Final = {
    "classic": ("ours", "confluent", "kafka-python"),
    "consumer": ("confluent", "confluent-2"),
}
"""The members of each protocol's group."""
WITHOUT_TRANSACTIONS: Final = ("aiokafka", "aiokafka-2")
"""The members of a classic group that copies at least once."""
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
            Sent(f"{source}-{library}", source, partitions)
            for source, partitions in SOURCES.items()
            for library in ("ours", "confluent")
        ]
        commands = {
            "ours": [sys.executable, "-m", "tests.siege.our_relay"],
            "confluent": python_command("confluent"),
            "java": java,
            "franz-go": go,
        }
        names, alone = list(commands), ("steady", "bursts")
        random.Random(seed).shuffle(names)
        self.copiers = [
            Copier(
                name=f"copier-{name}",
                command=commands[name],
                bootstrap=bootstrap,
                source=source,
                batch=BATCHES[source],
            )
            for name, source in zip(names, alone * 2, strict=True)
        ]
        commands |= {"kafka-python": python_command("kafka_python")}
        commands |= {"confluent-2": commands["confluent"]}
        self.groups = [
            SharingGroup(
                name=f"group-{protocol}",
                commands={member: commands[member] for member in members},
                bootstrap=bootstrap,
                source="shared",
                partitions=SOURCES["shared"],
                batch=BATCHES["shared"],
                protocol=protocol,
                seed=seed,
            )
            for protocol, members in GROUPS.items()
        ]
        aiokafka = python_command("aiokafka")
        self.groups.append(
            SharingGroup(
                name="group-plain",
                commands=dict.fromkeys(WITHOUT_TRANSACTIONS, aiokafka),
                bootstrap=bootstrap,
                source="shared",
                partitions=SOURCES["shared"],
                batch=BATCHES["shared"],
                protocol="classic",
                seed=seed,
                is_transactional=False,
            )
        )
        self.copying: list[Copier | SharingGroup] = [*self.copiers, *self.groups]
        self.polls: list[Poll] = []
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(20)
        self._running: list[Future[None]] = []

    def topics(self) -> dict[str, int]:
        """Return the partitions of each topic."""
        targets = {each.target: SOURCES[each.source] for each in self.copying}
        return {"ledger": LEDGER_PARTITIONS, **SOURCES, **targets}

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
        for copier in self.copying:
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
                **{name: n for each in self.copying for name, n in each.committed().items()},
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
            topic: read_everything(self.bootstrap, topic, number)
            for topic, number in SOURCES.items()
        }
        finishing = [
            self._threads.submit(copier.finish, sum(map(len, logs[copier.source].values())))
            for copier in self.copying
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
            "refusals of copiers": {each.name: each.refusals[-5:] for each in self.copying},
            "seconds until a group was settled": {
                each.name: round(each.settled_seconds, 1) for each in self.groups
            },
            "count": len(anomalies),
            "anomalies": [str(each) for each in anomalies[:SHOWN]],
        }

    def close(self) -> None:
        """End all tasks and agents."""
        self._stop.set()
        for copier in self.copying:
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
        for source in SOURCES:
            sent = [each for each in self.sent if each.topic == source]
            transactions = [each for one in sent for each in one.as_transactions()]
            found += check(History(transactions=transactions, log=logs[source], stored_offsets={}))
        for copier in self.copying:
            partitions = SOURCES[copier.source]
            logs[copier.target] = read_everything(self.bootstrap, copier.target, partitions)
            if isinstance(copier, SharingGroup) and not copier.is_transactional:
                stored = self._stored(copier.group, logs[copier.source])
                found += check_copied(logs[copier.source], logs[copier.target], stored)
            else:
                found += check(self._copy(copier, logs))
        return found

    def _stored(self, group: str, log: dict[Partition, list[Found]]) -> dict[Partition, int]:
        """Return the offsets that a group has stored for the partitions of a log."""
        with blocking.Consumer(self.bootstrap, group_id=group) as reader:
            stored = reader.committed([blocking.TopicPartition(*place) for place in log])
        return {blocking_place(place): at.offset for place, at in stored.items()}

    def _copy(
        self, copier: Copier | SharingGroup, logs: dict[str, dict[Partition, list[Found]]]
    ) -> History:
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
        transactions += [
            Transaction(
                process=copier.name,
                outcome=Outcome.OK,
                sends=[],
                takes={(copier.group, place): (0, len(records))},
            )
            for place, records in source.items()
        ]
        stored = self._stored(copier.group, source)
        offsets = {(copier.group, place): offset for place, offset in stored.items()}
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
