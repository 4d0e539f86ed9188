"""Fill the topic `departures` with the flights in order, and show the progress."""

import json
from collections.abc import Callable

from odradek.client.blocking import Producer
from scripts.refunds.flights import flights, key_of
from scripts.refunds.processor import TOPIC_IN


def load(bootstrap: str, limit: int | None, progress: Callable[[int], None]) -> int:
    """Write every flight and return their number. Raises if one was not stored."""
    count = 0
    with Producer(bootstrap, linger_ms=20, compression="lz4") as producer:
        for count, flight in enumerate(flights(limit), start=1):
            producer.send(TOPIC_IN, json.dumps(flight).encode(), key=key_of(flight))
            if count % 1_000 == 0:
                progress(count)
        producer.flush()
    progress(count)
    return count
