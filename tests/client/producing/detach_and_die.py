"""A member of a transaction group: it writes its part, says what it has detached, and is killed."""

import base64
import os
import pickle
import signal
import sys

from odradek.client.blocking import Producer


def main(bootstrap: str, transactional_id: str, topic: str, value: str) -> None:
    with (
        Producer(bootstrap, transactional_id=transactional_id) as producer,
        producer.transaction() as transaction,
    ):
        transaction.send(topic, value.encode(), partition=0)
        detached = transaction.detach()
        print(base64.b64encode(pickle.dumps(detached)).decode(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
