"""Checks of new topics and of new partitions, without effects."""

from collections.abc import Collection, Sequence
from typing import Final

from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode, KafkaError

NAME_MAX_CHARACTERS: Final = 249
NAME_CHARACTERS: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
)
PARTITIONS_MAX: Final = 10_000
"""The limit for one topic. Each partition is a directory with open files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTopic:
    """A topic as requested; -1 stands for the broker's default."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Partition index and broker ids, if the request has them."""
    configs: tuple[tuple[str, str | None], ...] = ()


def check_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for a name that cannot be the name of a directory."""
    problem = ""
    if not name:
        problem = "the empty string is not allowed. Name the topic."
    elif name in (".", ".."):
        problem = "'.' or '..' is not allowed. Choose a longer name."
    elif len(name) > NAME_MAX_CHARACTERS:
        problem = (
            f"the length of {shown_name(name)} is longer than the max allowed length "
            f"{NAME_MAX_CHARACTERS}. Choose a shorter name; this one has {len(name)} characters."
        )
    elif not NAME_CHARACTERS.issuperset(name):
        problem = (
            f"{shown_name(name)} contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'. Leave them out."
        )
    if problem:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def shown_name(name: str) -> str:
    """Return a name in quotes, for a message. A name too long for a topic is cut off."""
    return repr(name if len(name) <= NAME_MAX_CHARACTERS else f"{name[:20]}…")


def not_hosted(name: str) -> str:
    """Return the message for a topic that does not exist."""
    return (
        f"This server does not host this topic-partition. There is no topic {shown_name(name)}. "
        "Create it, or correct its name."
    )


def check_partition_count(count: int) -> None:
    """Raise INVALID_PARTITIONS for none or too many."""
    if 1 <= count <= PARTITIONS_MAX:
        return
    limits = f"A topic has 1 to {PARTITIONS_MAX} partitions, not {count}."
    phrase = "Number of partitions was set to an invalid non-positive value. " if count < 1 else ""
    raise KafkaError(ErrorCode.INVALID_PARTITIONS, phrase + limits)


def check_room(have: int, added: int, limit: int) -> None:
    """Raise POLICY_VIOLATION if all topics together would have too many partitions."""
    if have + added > limit:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"All topics together have {have} partitions, and {added} more would be above "
            f"max.broker.partitions, which is {limit}. Delete topics, or raise it.",
        )


def check_replication_factor(factor: int, broker_count: int) -> None:
    """Raise INVALID_REPLICATION_FACTOR unless there are as many brokers; -1 is the default."""
    if factor != -1 and factor < 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value. "
            f"It was {factor}.",
        )
    if factor > broker_count:
        # The second phrase is Kafka's before KRaft. More scripts search for it than for the first.
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor of "
            f"{factor} cannot be reached because only {broker_count} broker(s) are registered. "
            f"Replication factor: {factor} larger than available brokers: {broker_count}. "
            f"Ask for {broker_count}, or for -1, the default.",
        )


def check_replicas(replicas: Sequence[int], brokers: Collection[int]) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless `replicas` are different brokers of the cluster."""
    if not replicas or len(set(replicas)) < len(replicas) or not set(replicas) <= set(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"A partition cannot be on brokers {list(replicas)}: the cluster has brokers "
            f"{sorted(brokers)}.",
        )


def check_growth(name: str, have: int, wanted: int, new_assignments: int | None) -> None:
    """Raise KafkaError unless a topic may grow to `wanted` partitions.

    INVALID_PARTITIONS, or INVALID_REPLICA_ASSIGNMENT if the number of assignments is wrong.
    """
    if wanted <= have:
        phrase = (
            f"Topic already has {have} partition(s)."
            if wanted == have
            else f"Topic currently has {have} partitions, which is higher than the requested "
            f"{wanted}."
        )
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"{phrase} The partitions of {name} can only become more."
        )
    check_partition_count(wanted)
    if new_assignments not in (None, wanted - have):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{wanted - have} new partitions need as many assignments, not {new_assignments}.",
        )


def planned_partition_count(wanted: WantedTopic, *, default: int, brokers: Collection[int]) -> int:
    """Check a new topic's partitions and replicas. Return the number of partitions."""
    if not wanted.assignments:
        count = default if wanted.partition_count == -1 else wanted.partition_count
        check_partition_count(count)
        check_replication_factor(wanted.replication_factor, len(brokers))
        return count
    if wanted.partition_count != -1 or wanted.replication_factor != -1:
        which = "numPartitions" if wanted.replication_factor == -1 else "replication factor"
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"A manual partition assignment was specified, but {which} was not set to -1. "
            "Give assignments, or the numbers of partitions and replicas, not both.",
        )
    indexes = sorted([index for index, _ in wanted.assignments])
    if indexes != list(range(len(indexes))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Partitions are numbered from 0 without gaps, not {indexes[:10]}.",
        )
    check_partition_count(len(indexes))
    for replicas in {replicas: None for _, replicas in wanted.assignments}:  # mostly the same
        check_replicas(replicas, brokers)
    return len(indexes)
