"""Buckets that are filled evenly: what a client may use, and the time that it must wait.

A client that begins may use at once what its quota allows for some seconds. What it uses beyond
that it has to wait for. One request may overdraw the bucket, as its size is known too late, or
nothing smaller would do. For bytes and time Kafka computes a rate over samples. A client that goes
on at its quota, and one that is over it for the first time, wait for as long here as there. But
Kafka forgets what is older than all samples, and a client that waits as it is asked may be over its
quota still; here it is not.
"""

import math
from typing import Final

SHORTEST_SECONDS: Final = 0.001
"""Clients are told milliseconds, so less is no wait."""


class Bucket:
    """A bucket. `rate` and `burst` are those of now, as a quota may change."""

    __slots__ = ("_filled_at", "_level")

    def __init__(self, burst: float, now: float) -> None:
        self._level = burst
        self._filled_at = now

    def take(self, amount: float) -> None:
        """Take an amount, also more than there is. A negative one is given back."""
        self._level -= amount

    def wait_seconds(
        self, rate: float, burst: float, now: float, *, debt_max_seconds: float = math.inf
    ) -> float:
        """Return the seconds until the bucket is not overdrawn any more.

        A debt that takes longer than `debt_max_seconds` to pay is forgiven down to that.
        """
        filled = min(burst, self._level + (now - self._filled_at) * rate)
        self._level = max(filled, -rate * debt_max_seconds)
        self._filled_at = now
        waits = -self._level / rate
        return waits if waits >= SHORTEST_SECONDS else 0.0
