"""A member of a group of the new protocol, as a process: it commits every record that it has read.

`python -m tests.compat.consumer_group_member BOOTSTRAP GROUP TOPIC` prints `partition offset` for
each record once its offset is stored, and runs until it is killed.
"""

import sys
from typing import NoReturn

from tests.compat.confluent import Received, consumer


def main(bootstrap: str, group: str, topic: str) -> NoReturn:
    with consumer(bootstrap, group, group_protocol="consumer") as member:
        member.subscribe([topic])
        while True:
            message = member.poll(1.0)
            if message is not None and message.error() is None:
                member.commit(message=message, asynchronous=False)
                record = Received.of(message)
                print(record.partition, record.offset, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
