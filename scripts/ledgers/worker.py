"""A program that moves money: ADDRESS CONNINFO NAME COUNT SEED [STEP:N].

It prints what became of each move: `done`, `decided` (PostgreSQL has committed, the broker has not
confirmed), `aborted` or `unknown`. When STEP is reached for the Nth time it prints `at STEP` and
waits for a line. The exit status is 3 after an error, and then the program is started again.
"""

import json
import os
import sys
from random import Random
from typing import Any, Final

import psycopg

from odradek.client import Fatal, OdradekError
from odradek.client.postgres import CommittedInPostgres, CommitUnknown, Step
from odradek.client.postgres.blocking import PostgresProducer

TOPIC: Final = "moves"
ACCOUNTS: Final = ("ada", "bob", "cyd", "dan", "eve")
AGAIN: Final = 3

MOVE: Final = "UPDATE accounts SET balance = balance + %s WHERE name = %s"
KEEP: Final = "INSERT INTO moves VALUES (%s)"


def say(word: str, what: str) -> None:
    print(word, what, flush=True)


class Pause:
    """Waits for a line when a step is reached for the Nth time."""

    def __init__(self, text: str) -> None:
        self._step, _, count = text.partition(":")
        self._left = int(count or 0)

    def __call__(self, step: Step) -> None:
        if step == self._step:
            self._left -= 1
            if self._left == 0:
                say("at", step)
                sys.stdin.readline()


def move(
    connection: psycopg.Connection[Any], producer: PostgresProducer, name: str, dice: Random
) -> None:
    """Move some money in one commit, and print what became of it. Raises what ends the program."""
    giver, taker = dice.sample(ACCOUNTS, 2)
    amount = dice.randrange(1, 100)
    try:
        with producer.transaction(connection) as txn:
            connection.execute(MOVE, [-amount, giver])
            event = {"name": name, "from": giver, "to": taker, "amount": amount}
            txn.send(TOPIC, json.dumps(event).encode(), key=giver.encode())
            connection.execute(MOVE, [amount, taker])
            connection.execute(KEEP, [name])
    except CommittedInPostgres:
        say("decided", name)
        raise
    except CommitUnknown:
        say("unknown", name)
        raise
    except Fatal:
        say("aborted", name)
        raise
    except (psycopg.Error, OdradekError):
        say("aborted", name)
        if connection.broken:
            raise
    else:
        say("done", name)


def main(
    address: str, conninfo: str, name: str, count: str, seed: str, pause: str = "none:0"
) -> int:
    dice = Random(seed)
    try:
        with (
            psycopg.connect(conninfo) as connection,
            PostgresProducer(
                address, conninfo, transactional_id=name, reached=Pause(pause)
            ) as producer,
        ):
            say("recovered", producer.recovered)
            for number in range(int(count)):
                move(connection, producer, f"{name}-{os.getpid()}-{seed}-{number}", dice)
    except (psycopg.Error, OdradekError) as error:
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
        return AGAIN
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
