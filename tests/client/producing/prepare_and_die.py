"""A process that prepares a transaction and is killed before it ends it: ADDRESS ID TOPIC VALUE.

It writes what was prepared to its standard output, or `open` if VALUE ends with a question mark:
then it dies before it has prepared.
"""

import os
import signal
import sys

from odradek.client.blocking import Producer


def main(address: str, transactional_id: str, topic: str, value: str) -> None:
    with (
        Producer(
            address, transactional_id=transactional_id, two_phase_commit=True, keep_prepared=True
        ) as producer,
        producer.transaction() as transaction,
    ):
        transaction.send(topic, value.encode(), partition=0)
        transaction.flush()
        print("open" if value.endswith("?") else transaction.prepare(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
