"""The clients that opened the transactions of a partition, as its leader saw them.

The transaction coordinator knows them, too. But in a cluster the coordinator may be another broker,
and DescribeProducers asks the partition's leader why readers wait. So the leader remembers each
client when the first batch of its transaction is appended. It keeps that in memory only: after a
restart only the coordinator knows.
"""

from typing import Final

from odradek.broker.storage.producer_entry import ProducerEntry
from odradek.broker.storage.producers import Producers
from odradek.broker.values.client_identity import ClientIdentity
from odradek.late import dataclass

LEFT_OVER_MAX: Final = 32
"""Ended transactions that may be remembered, besides as many as are open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opener:
    transactional_id: str | None
    client: ClientIdentity
    first_offset: int
    since_ms: int
    """Wall-clock milliseconds."""


class Openers:
    """The openers of one partition, by producer id: at most about twice as many as are open."""

    __slots__ = ("_known", "_producers")

    def __init__(self, producers: Producers) -> None:
        self._producers = producers
        self._known: dict[int, Opener] = {}

    def __len__(self) -> int:
        return len(self._known)

    def are_known(self, producer_id: int) -> bool:
        """Return True if there is nothing to `note`: no transaction is open, or it is not new."""
        entry = self._producers.entries.get(producer_id)
        return entry is None or not entry.has_open_transaction or self.of(entry) is not None

    def note(
        self, producer_id: int, *, transactional_id: str | None, client: ClientIdentity, now_ms: int
    ) -> None:
        """Note the client whose first batch of a transaction was just appended."""
        self._known[producer_id] = Opener(
            transactional_id=transactional_id,
            client=client,
            first_offset=self._producers.entries[producer_id].first_offset,
            since_ms=now_ms,
        )
        if len(self._known) > 2 * self._producers.open_count + LEFT_OVER_MAX:
            self._forget_ended()

    def of(self, entry: ProducerEntry) -> Opener | None:
        """Return the client of the producer's open transaction; None without one, or if unknown."""
        found = self._known.get(entry.producer_id)
        if found is None or found.first_offset != entry.first_offset:
            return None
        return found

    def _forget_ended(self) -> None:
        has_open = self._producers.has_open_transaction
        self._known = {key: opener for key, opener in self._known.items() if has_open(key)}
