"""A bank: tellers move money between accounts in transactions, and no money is made or lost.

`python -m tests.soak.bank BOOTSTRAP` runs them in the network of a cluster until a line comes. Each
line that it prints is a JSON object: `times` of the transfers since the line before, and in the end
the `verdict`. A transfer is two entries in two partitions, one of which takes what the other gets.
"""

import json
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from odradek.client import blocking
from tests.checker.history import Outcome
from tests.siege.reading import read_everything

TOPIC: Final = "bank"
PARTITIONS: Final = 6
TELLERS: Final = 3
ABORTED_SHARE: Final = 0.2
PAUSE_SECONDS: Final = 0.1
LINE_SECONDS: Final = 5.0
SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Entry:
    """Half of a transfer, as it stands in the topic."""

    transfer: str
    amount: int

    def to_value(self) -> bytes:
        return json.dumps([self.transfer, self.amount]).encode()

    @staticmethod
    def from_value(value: bytes) -> "Entry":
        return Entry(*json.loads(value))


class Teller:
    """One transactional id, and what it knows of its transfers."""

    def __init__(self, name: str) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self.milliseconds: list[float] = []
        """The times of the transfers that were committed since somebody took them."""
        self._name = name
        self._dice = random.Random(name)

    def work(self, bootstrap: str, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                with blocking.Producer(bootstrap, transactional_id=self._name) as producer:
                    while not stop.wait(PAUSE_SECONDS):
                        self._transfer(producer)
            except blocking.OdradekError as error:  # the next one ends what this one left behind
                print(f"{self._name}: {error}", file=sys.stderr, flush=True)

    def _transfer(self, producer: blocking.Producer) -> None:
        transfer = f"{self._name}-{len(self.outcomes)}"
        self.outcomes[transfer] = Outcome.INFO
        amount = self._dice.randint(1, 1_000)
        giver, taker = self._dice.sample(range(PARTITIONS), 2)
        aborts = self._dice.random() < ABORTED_SHARE
        began = time.monotonic()
        with producer.transaction() as transaction:
            for partition, signed in ((giver, -amount), (taker, amount)):
                value = Entry(transfer, signed).to_value()
                transaction.send(TOPIC, value, partition=partition)
            if aborts:
                transaction.abort()
        self.outcomes[transfer] = Outcome.FAIL if aborts else Outcome.OK
        if not aborts:
            self.milliseconds.append(1_000 * (time.monotonic() - began))


def judge(outcomes: Mapping[str, Outcome], entries: Iterable[Entry]) -> list[str]:
    """Return a sentence for each transfer that is not what its teller knows of it."""
    amounts: dict[str, list[int]] = defaultdict(list)
    for entry in entries:
        amounts[entry.transfer].append(entry.amount)
    found = []
    for transfer, seen in amounts.items():
        if transfer not in outcomes:
            found.append(f"{transfer}: no teller has made it, and it is there: {seen}")
        elif outcomes[transfer] is Outcome.FAIL:
            found.append(f"{transfer}: it was aborted, and it is there: {seen}")
        elif len(seen) != 2 or sum(seen) != 0:
            found.append(f"{transfer}: it is not two entries that cancel out: {seen}")
    for transfer, outcome in outcomes.items():
        if outcome is Outcome.OK and transfer not in amounts:
            found.append(f"{transfer}: it was committed, and it is not there")
    return found


def times_of(milliseconds: list[float]) -> dict[str, Any]:
    """Return the number of transfers, and their median and 99th percentile."""
    ordered = sorted(milliseconds)
    if not ordered:
        return {"transfers": 0}
    return {
        "transfers": len(ordered),
        "p50": round(ordered[len(ordered) // 2], 1),
        "p99": round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)], 1),
    }


def say(kind: str, found: dict[str, Any]) -> None:
    print(json.dumps({kind: found}), flush=True)


def main() -> None:
    bootstrap = sys.argv[1]
    ended, stop = threading.Event(), threading.Event()
    with blocking.Admin(bootstrap) as admin:
        configs = {"min.insync.replicas": "2"}
        admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3, configs=configs)
    tellers = [Teller(f"teller-{number}") for number in range(TELLERS)]
    threads = [threading.Thread(target=each.work, args=(bootstrap, stop)) for each in tellers]

    def wait_for_a_line() -> None:
        sys.stdin.readline()
        ended.set()

    for thread in (threading.Thread(target=wait_for_a_line, daemon=True), *threads):
        thread.start()
    while not ended.wait(LINE_SECONDS):
        taken: list[float] = []
        for teller in tellers:
            milliseconds, teller.milliseconds = teller.milliseconds, []
            taken += milliseconds
        say("times", {"at": time.time(), **times_of(taken)})
    stop.set()
    for thread in threads:
        thread.join()
    for number in range(TELLERS):  # a new instance ends the transaction of its predecessor
        blocking.Producer(bootstrap, transactional_id=f"teller-{number}").close()
    log = read_everything(bootstrap, TOPIC, PARTITIONS)
    entries = [Entry.from_value(value) for found in log.values() for _, value in found]
    outcomes = {name: found for each in tellers for name, found in each.outcomes.items()}
    anomalies = judge(outcomes, entries)
    counts = {each.name: list(outcomes.values()).count(each) for each in Outcome}
    say("verdict", {**counts, "count": len(anomalies), "anomalies": anomalies[:SHOWN]})


if __name__ == "__main__":
    main()
