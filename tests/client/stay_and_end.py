"""A process that is a member of a group until it ends, in one of several ways.

`test_groups_live.py` starts it with an address, a topic, which is also the group, one way, and the
session's time. It prints a line when it has its partitions.
"""

import signal
import sys
from typing import Final

from odradek.client.blocking import Consumer

HOUR_MS: Final = 3_600_000
SESSION_MS: Final = 1_000
WAYS: Final = ("exception", "sys.exit", "Ctrl-C", "signal", "clean")


def main(address: str, topic: str, way: str, session_ms: int = HOUR_MS) -> None:
    with Consumer(
        address, group_id=topic, session_timeout_ms=session_ms, heartbeat_interval_ms=100
    ) as consumer:
        consumer.subscribe(topic)
        while len(consumer.assignment()) < 4:
            consumer.poll(50)
        print("joined", len(consumer.assignment()), flush=True)
        if way == "exception":
            raise ZeroDivisionError
        if way == "sys.exit":
            sys.exit(3)
        if way == "Ctrl-C":
            signal.raise_signal(signal.SIGINT)
        while way != "clean":  # a signal comes from outside
            consumer.poll(50)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(given[0], given[1], given[2], *map(int, given[3:]))
