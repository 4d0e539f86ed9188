"""A program that moves money: blocking|trio ADDRESS CONNINFO NAME COUNT SEED [STEP:N].

It prints what became of each move: `done`, `decided` (PostgreSQL has committed, the broker has not
confirmed), `aborted` or `unknown`. When STEP is reached for the Nth time it prints `at STEP` and
waits for a line. The exit status is 3 after an error, and then the program is started again.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

import psycopg
import trio

from odradek.client import Fatal, OdradekError
from odradek.client.postgres import CommittedInPostgres, CommitUnknown, PostgresProducer, Step
from odradek.client.postgres.blocking import PostgresProducer as BlockingPostgresProducer

Connection = psycopg.Connection[Any]

TOPIC: Final = "moves"
ACCOUNTS: Final = ("ada", "bob", "cyd", "dan", "eve")
AGAIN: Final = 3

MOVE: Final = "UPDATE accounts SET balance = balance + %s WHERE name = %s"
KEEP: Final = "INSERT INTO moves VALUES (%s)"


def say(word: str, what: str) -> None:
    sys.stdout.write(f"{word} {what}\n")  # print may write it in parts
    sys.stdout.flush()


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


@contextmanager
def told(name: str, connection: Connection) -> Iterator[None]:
    """Print what became of a move. Raises what ends the program."""
    try:
        yield
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


class Mover:
    """Moves money between accounts that the dice choose."""

    def __init__(self, connection: Connection, name: str, seed: str) -> None:
        self._connection = connection
        self._name = name
        self._seed = seed
        self._dice = Random(seed)

    def _drawn(self, number: int) -> tuple[str, str, str, int]:
        """Return the name of a move, who gives, who takes, and how much."""
        giver, taker = self._dice.sample(ACCOUNTS, 2)
        name = f"{self._name}-{os.getpid()}-{self._seed}-{number}"
        return name, giver, taker, self._dice.randrange(1, 100)

    def move(self, producer: BlockingPostgresProducer, number: int) -> None:
        connection = self._connection
        name, giver, taker, amount = self._drawn(number)
        with told(name, connection), producer.transaction(connection) as txn:
            connection.execute(MOVE, [-amount, giver])
            txn.send(TOPIC, event(name, giver, taker, amount), key=giver.encode())
            connection.execute(MOVE, [amount, taker])
            connection.execute(KEEP, [name])

    async def move_with_trio(self, producer: PostgresProducer, number: int) -> None:
        name, giver, taker, amount = self._drawn(number)
        with told(name, self._connection):
            async with producer.transaction(self._connection) as txn:
                await txn.execute(MOVE, [-amount, giver])
                await txn.send(TOPIC, event(name, giver, taker, amount), key=giver.encode())
                await txn.execute(MOVE, [amount, taker])
                await txn.execute(KEEP, [name])


def event(name: str, giver: str, taker: str, amount: int) -> bytes:
    return json.dumps({"name": name, "from": giver, "to": taker, "amount": amount}).encode()


def main(
    client: str,
    address: str,
    conninfo: str,
    name: str,
    count: str,
    seed: str,
    pause: str = "none:0",
) -> int:
    reached = Pause(pause)

    def with_blocking() -> None:
        with BlockingPostgresProducer(
            address, conninfo, transactional_id=name, reached=reached
        ) as producer:
            say("recovered", producer.recovered)
            for number in range(int(count)):
                mover.move(producer, number)

    async def with_trio() -> None:
        async with PostgresProducer(
            address, conninfo, transactional_id=name, reached=reached
        ) as producer:
            say("recovered", producer.recovered)
            for number in range(int(count)):
                await mover.move_with_trio(producer, number)

    try:
        with psycopg.connect(conninfo) as connection:
            mover = Mover(connection, name, seed)
            if client == "trio":
                trio.run(with_trio)
            else:
                with_blocking()
    except (psycopg.Error, OdradekError) as error:
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
        return AGAIN
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
