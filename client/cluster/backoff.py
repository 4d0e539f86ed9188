"""Pauses between attempts."""

from typing import Final

from odradek.client.config import ClientConfig
from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode

CONCURRENT_TRANSACTIONS_BACKOFF_MS: Final = 1.0
"""The first pause after CONCURRENT_TRANSACTIONS: markers are usually written in milliseconds."""


@dataclass(slots=True)
class Backoff:
    """Pauses that double up to a maximum, each drawn from its upper half so that peers spread."""

    config: ClientConfig
    count: int = 0

    def next_seconds(self, code: ErrorCode | None = None) -> float:
        first_ms = self.config.retry_backoff_ms
        if code == ErrorCode.CONCURRENT_TRANSACTIONS:
            first_ms = min(first_ms, CONCURRENT_TRANSACTIONS_BACKOFF_MS)
        pause = first_ms * 2.0 ** min(self.count, 20)
        self.count += 1
        pause = min(pause, self.config.retry_backoff_max_ms)
        return pause * self.config.rng.uniform(0.5, 1.0) / 1000
