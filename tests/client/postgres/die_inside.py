"""A process that is killed at a step of a commit: ADDRESS CONNINFO NAME VALUE STEP.

It dies by itself with SIGKILL. With the step `none` it ends its work.
"""

import os
import signal
import sys

import psycopg

from odradek.client.postgres import Step
from odradek.client.postgres.blocking import PostgresProducer


def main(address: str, conninfo: str, name: str, value: str, step: str) -> None:
    def reached(now: Step) -> None:
        if now == step:
            os.kill(os.getpid(), signal.SIGKILL)

    with (
        psycopg.connect(conninfo) as connection,
        PostgresProducer(address, conninfo, transactional_id=name, reached=reached) as producer,
        producer.transaction(connection) as txn,
    ):
        connection.execute(f'INSERT INTO "{name}" VALUES (%s)'.encode(), [value])
        txn.send(name, value.encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
