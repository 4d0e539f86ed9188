"""The sides of a move of money: the program, the broker and PostgreSQL, and their judge."""

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Final

import trio

from odradek.broker.testing import RunningBroker
from scripts.ledgers import worker
from scripts.ledgers.worker import ACCOUNTS, AGAIN, TOPIC
from tests.client.live import read_all
from tests.peers.postgres import RunningPostgres

PARTITIONS: Final = 3
CLIENTS: Final = {"first": "blocking", "second": "trio"}
"""The names of the programs, and the client that each uses."""
BALANCE: Final = 1_000
SETTINGS: Final = {
    "transaction.two.phase.commit.enable": "true",
    "num.partitions": str(PARTITIONS),
}
PATIENCE_S: Final = 300.0
"""Longer than any machine takes."""
KILLED: Final = -9


class Unlike(Exception):
    """The two sides do not have the same, or a program was not told the truth."""


class Ledger:
    """The two servers, and what the programs were told about each move."""

    def __init__(self, broker: RunningBroker, postgres: RunningPostgres) -> None:
        self.broker = broker
        self.postgres = postgres
        self.told: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        postgres.ask("CREATE TABLE accounts (name text PRIMARY KEY, balance bigint)")
        postgres.ask("CREATE TABLE moves (name text PRIMARY KEY)")
        for name in ACCOUNTS:
            postgres.ask("INSERT INTO accounts VALUES (%s, %s)", [name, BALANCE])

    def kill(self, side: str) -> None:
        """Kill a server with SIGKILL, and start it again."""
        self.counts[f"kills of {side}"] += 1
        server = self.broker if side == "the broker" else self.postgres
        server.kill()
        server.start()

    def judge(self) -> None:
        """Compare both sides. Every program has ended in order. Raises `Unlike`."""
        balances = dict(self.postgres.ask("SELECT name, balance FROM accounts"))
        moves = [row[0] for row in self.postgres.ask("SELECT name FROM moves")]
        records = trio.run(_read, self.broker.address)
        events = [json.loads(value) for value in records]
        by_events = dict.fromkeys(ACCOUNTS, BALANCE)
        for event in events:
            by_events[event["from"]] -= event["amount"]
            by_events[event["to"]] += event["amount"]
        if sum(balances.values()) != BALANCE * len(ACCOUNTS):
            raise Unlike(f"the sum of the accounts has changed: {balances}")
        names = Counter(event["name"] for event in events)
        if names != Counter(moves):
            raise Unlike(
                f"only in PostgreSQL: {sorted(set(moves) - names.keys())}, only in the topic: "
                f"{sorted(names.keys() - set(moves))}, twice: "
                f"{[name for name, count in names.items() if count > 1]}"
            )
        if balances != by_events:
            raise Unlike(f"the accounts have {balances}, and the records give {by_events}")
        for name, word in self.told.items():
            is_there = name in names
            if word in ("done", "decided") and not is_there:
                raise Unlike(f"{name} was {word}, and is nowhere")
            if word == "aborted" and is_there:
                raise Unlike(f"{name} was aborted, and is on both sides")
        self.counts["moves on both sides"] = len(moves)


async def _read(address: str) -> list[bytes]:
    records = await read_all(address, TOPIC, partitions=PARTITIONS)
    return [record.value or b"" for record in records]


class Program:
    """A process of `worker.py`. What it says is collected while it runs."""

    def __init__(
        self, ledger: Ledger, name: str, count: int, seed: str, pause: str = "none:0"
    ) -> None:
        self._ledger = ledger
        self.is_at = threading.Event()
        """It waits at its step, or has ended."""
        self.process = subprocess.Popen(
            [
                *(sys.executable, str(Path(worker.__file__)), CLIENTS[name]),
                *(ledger.broker.address, ledger.postgres.conninfo, name, str(count), seed, pause),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            text=True,
        )
        self._listening = threading.Thread(target=self._listen)
        self._listening.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, _, what = line.rstrip("\n").partition(" ")
            if not line.endswith("\n"):
                continue  # the program was killed while it wrote
            if word == "at":
                self.is_at.set()
            elif word == "recovered":
                self._ledger.counts[f"at the start: {what}"] += 1
            else:
                self._ledger.told[what] = word
                self._ledger.counts[f"told {word}"] += 1
        self.is_at.set()

    def kill(self) -> None:
        self._ledger.counts["kills of the program"] += 1
        self.process.kill()

    def go_on(self) -> None:
        """Let it leave the step at which it waits."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def ended(self) -> int:
        """Wait for its end. Return its exit status. Raises `Unlike` if it failed by a bug."""
        status = self.process.wait(PATIENCE_S)
        self._listening.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        if status not in (0, AGAIN, KILLED):
            raise Unlike(f"a program ended with {status}")
        return status


def run_to_the_end(ledger: Ledger, name: str, count: int, seed: str) -> None:
    """Run a program until it ends in order."""
    while Program(ledger, name, count, seed).ended() != 0:
        ledger.counts["starts after an error"] += 1
