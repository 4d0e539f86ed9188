"""What a new topic may be: checks without effects, whose refusals are sentences."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.protocol.errors import ErrorCode, KafkaError

NAME_MAX_CHARACTERS: Final = 249
NAME_CHARACTERS: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
)
PARTITIONS_MAX: Final = 10_000
"""Partitions of one topic; each is a directory with open files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic as asked for; -1 stands for the broker's default."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Partition index and broker ids, if the asker chose them."""
    configs: tuple[tuple[str, str | None], ...] = ()


def check_name(name: str) -> None:
    """INVALID_TOPIC_EXCEPTION for a name that cannot be a directory's."""
    problem = ""
    if not name:
        problem = "is empty"
    elif name in (".", ".."):
        problem = "is a directory of its own"
    elif len(name) > NAME_MAX_CHARACTERS:
        problem = f"has {len(name)} characters; {NAME_MAX_CHARACTERS} are possible"
    elif not NAME_CHARACTERS.issuperset(name):
        problem = "has characters other than a-z, A-Z, 0-9, '.', '_' and '-'"
    if problem:
        shown = repr(name if len(name) <= NAME_MAX_CHARACTERS else f"{name[:20]}…")
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{shown} is no name for a topic: it {problem}."
        )


def check_partition_count(count: int) -> None:
    """INVALID_PARTITIONS for none or too many."""
    if not 1 <= count <= PARTITIONS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"A topic has 1 to {PARTITIONS_MAX} partitions, not {count}.",
        )


def check_replication_factor(factor: int, broker_count: int) -> None:
    """INVALID_REPLICATION_FACTOR unless there are as many brokers; -1 is the default."""
    if factor != -1 and not 1 <= factor <= broker_count:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"A replication factor of {factor} is not possible with {broker_count} "
            f"broker{'' if broker_count == 1 else 's'}.",
        )


def check_replicas(replicas: Sequence[int], brokers: Collection[int]) -> None:
    """INVALID_REPLICA_ASSIGNMENT unless `replicas` are different brokers of the cluster."""
    if not replicas or len(set(replicas)) < len(replicas) or not set(replicas) <= set(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"A partition cannot be on brokers {list(replicas)}: the cluster has "
            f"{sorted(brokers)}.",
        )


def check_growth(name: str, have: int, wanted: int, new_assignments: int | None) -> None:
    """INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT: a topic grows, and by what is assigned."""
    if wanted <= have:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic {name} has {have} partitions; it can only get more, not {wanted}.",
        )
    check_partition_count(wanted)
    if new_assignments not in (None, wanted - have):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{wanted - have} new partitions need as many assignments, not {new_assignments}.",
        )


def planned_partition_count(wanted: NewTopic, *, default: int, brokers: Collection[int]) -> int:
    """How many partitions a new topic gets, once everything about their number is checked."""
    if not wanted.assignments:
        count = default if wanted.partition_count == -1 else wanted.partition_count
        check_partition_count(count)
        check_replication_factor(wanted.replication_factor, len(brokers))
        return count
    if wanted.partition_count != -1 or wanted.replication_factor != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Give assignments, or the numbers of partitions and replicas, not both.",
        )
    indexes = sorted(index for index, _ in wanted.assignments)
    if indexes != list(range(len(indexes))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Partitions are numbered from 0 without gaps, not {indexes[:10]}.",
        )
    check_partition_count(len(indexes))
    for _, replicas in wanted.assignments:
        check_replicas(replicas, brokers)
    return len(indexes)
