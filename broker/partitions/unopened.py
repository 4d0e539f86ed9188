"""The partitions of a broker whose logs could not be opened, so that they are offline.

Nothing in their directories is changed. A person mends them with `odradek log repair` while the
broker is stopped; until then every request for such a partition is refused with
KAFKA_STORAGE_ERROR, as Kafka refuses requests for an offline replica.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final
from uuid import UUID

from odradek.broker.values.topic_partition import TopicPartition
from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode, KafkaError

SHOWN: Final = 10


class OfflineCause(StrEnum):
    """The kind of reason why a log cannot be used. It says what an operator has to do."""

    MISSING = "missing"
    """The directory is gone, or has no segment: put it back, or give it up."""
    DAMAGED = "damaged"
    """The stored data is wrong: `odradek log repair`."""
    DISK = "disk"
    """The disk, or a file that cannot be opened, is the reason."""


@dataclass(frozen=True, slots=True)
class Unopened:
    """The topic of a log that could not be opened, and the reason."""

    topic_id: UUID
    reason: str
    cause: OfflineCause


def why_missing(directory: str, where: TopicPartition, *, is_there: bool, is_only: bool) -> str:
    """Return the reason why a partition is offline whose log is lost, and what to do.

    `is_there` is True if its directory is. `is_only` is True if it has no other replica.
    """
    what = "has no segment of its log" if is_there else "is missing"
    if is_only:
        return (
            f"the directory {directory} {what}, and there is no other replica. Stop the broker, "
            "and put back what was there: a disk that is not mounted, say, or that was not "
            f"restored. If it is lost, `odradek log repair {directory} --make-missing` lets the "
            "partition begin anew, empty; then start the broker"
        )
    return (
        f"the directory {directory} {what}, and no other replica has all records. Stop the broker, "
        "and put the directory back. If it is lost, let another replica lead while the broker is "
        f"stopped (`odradek cluster elect {where} --unclean`); then start the broker"
    )


class UnopenedPartitions:
    """The partitions of one broker whose logs could not be opened."""

    def __init__(self) -> None:
        self._known: dict[TopicPartition, Unopened] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._known)

    def __contains__(self, where: TopicPartition) -> bool:
        return where in self._known

    def __str__(self) -> str:
        """Return the part of the start-up line about them; empty if there are none."""
        if not self._known:
            return ""
        names = [str(where) for where in sorted(self._known)]
        more = f" and {len(names) - SHOWN} more" if names[SHOWN:] else ""
        return f", {len(names)} offline ({', '.join(names[:SHOWN])}{more}; the log says why)"

    def add(self, where: TopicPartition, topic_id: UUID, reason: str, cause: OfflineCause) -> None:
        """Note that a partition could not be opened, and why."""
        self._known[where] = Unopened(topic_id, reason, cause)

    def cause_of(self, where: TopicPartition) -> OfflineCause | None:
        """Return the cause; None if the partition is not here."""
        found = self._known.get(where)
        return None if found is None else found.cause

    def damaged_partitions(self) -> list[TopicPartition]:
        """Return the partitions whose damage a restart does not mend."""
        return [where for where, log in self._known.items() if log.cause is not OfflineCause.DISK]

    def topic_id_of(self, where: TopicPartition) -> UUID | None:
        found = self._known.get(where)
        return None if found is None else found.topic_id

    def keys(self) -> dict[str, tuple[bytes, int]]:
        """Return what names the logs in the journal, by the names of their directories."""
        return {
            str(where): (log.topic_id.bytes, where.partition) for where, log in self._known.items()
        }

    def discard(self, where: TopicPartition) -> UUID | None:
        """Forget a partition and return the id of its topic; None if it is not here."""
        found = self._known.pop(where, None)
        return None if found is None else found.topic_id

    def check(self, where: TopicPartition) -> None:
        """Raise KafkaError KAFKA_STORAGE_ERROR if the partition could not be opened."""
        found = self._known.get(where)
        if found is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{where} is offline: {found.reason}")
