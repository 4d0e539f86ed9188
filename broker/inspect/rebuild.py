"""Rebuild the metadata store from the directories of the partitions.

The store is lost or damaged, but the logs are there. Each directory has its identity in
`topic.meta`; one of an earlier version has at least the topic id, in `checkpoint`. Readable parts
of the damaged store are used for topics with the same id. The new store must not make the damage
worse, so:

- If directories contradict each other, the rebuild refuses to guess (`CannotRebuild`).
- A topic gets the number of partitions that its directories give, because keys, groups and
  transactional ids are hashed over that number. A missing directory is refused, unless the operator
  asks for an empty one.
- If a topic's settings are unknown, nothing of it is removed: no retention and no compaction.
- Producer ids and leader epochs start well above everything that is found. The gap covers those
  that were given out and left no trace.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final
from uuid import UUID

from odradek.broker.cluster.acl_keys import closing_puts
from odradek.broker.cluster.image import PartitionImage, TopicImage
from odradek.broker.cluster.metadata import new_cluster_id
from odradek.broker.cluster.new_topic import PARTITIONS_MAX
from odradek.broker.cluster.store import (
    CLUSTER,
    DELETIONS,
    PARTITIONS,
    TOPICS,
    check_metadata_format,
    deletion_key,
    pack,
    read_deletions,
    read_topics,
    topic_puts,
    unpack,
)
from odradek.broker.cluster.two_copies import DamagedStore, decode_body, encode_record
from odradek.broker.environment.env import Versioned
from odradek.broker.inspect.survey import Surveyed
from odradek.broker.txn.producer_ids import PRODUCER_IDS_KEY
from odradek.late import dataclass
from odradek.protocol.state_topics import INTERNAL_TOPICS

PRODUCER_ID_GAP: Final = 1_000_000
EPOCH_GAP: Final = 10_000
NEVER_MS: Final = str(2**63 - 1)

NO_RETENTION: Final = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
"""The settings of a topic whose own settings are unknown."""
NO_COMPACTION: Final = {
    **NO_RETENTION,
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": NEVER_MS,
}
"""The same for a log with gaps from compaction: it must be opened as a log that may have gaps."""


class CannotRebuild(Exception):
    """The directories contradict each other. `reasons` are sentences."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(" ".join(reasons))
        self.reasons = reasons


@dataclass(slots=True)
class Salvaged:
    """The readable contents of the damaged store."""

    cluster_id: str | None = None
    topics: dict[UUID, TopicImage] = field(default_factory=dict)
    deletions: dict[UUID, str] = field(default_factory=dict)
    next_producer_id: int = 0
    max_epoch: int = -1

    @classmethod
    def of(cls, bodies: Sequence[bytes]) -> "Salvaged":
        """Return what the records of a store have, up to the first that cannot be read.

        Raises ConfigError if they are of a newer format.
        """
        values: dict[str, bytes] = {}
        for body in bodies:
            try:
                _, puts, _ = decode_body(body)
            except DamagedStore:
                break
            for key, value in puts.items():
                if value is None:
                    values.pop(key, None)
                else:
                    values[key] = value
        return cls.read(values)

    @classmethod
    def read(cls, values: Mapping[str, bytes]) -> "Salvaged":
        """Read the values. Raises ConfigError if they are of a newer format."""

        def under(prefix: str) -> dict[str, Versioned]:
            return {
                key: Versioned(value=value, create_revision=0, mod_revision=0)
                for key, value in values.items()
                if key.startswith(prefix)
            }

        if (cluster := under(CLUSTER).get(CLUSTER)) is not None:
            check_metadata_format(cluster)
        topics = read_topics(under(TOPICS), under(PARTITIONS))
        return cls(
            cluster_id=unpack(values[CLUSTER])["id"] if CLUSTER in values else None,
            topics={topic.topic_id: topic for topic in topics},
            deletions=read_deletions(under(DELETIONS)),
            next_producer_id=int(values.get(PRODUCER_IDS_KEY, b"0")),
            max_epoch=max(
                (partition.leader_epoch for topic in topics for partition in topic.partitions),
                default=-1,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltTopic:
    """A topic of the new store. `missing` are partitions without a directory."""

    topic: TopicImage
    size_bytes: int
    are_configs_known: bool
    missing: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildPlan:
    """The contents of the new store.

    `deletions` are deleted topics whose directories have yet to be removed.
    """

    cluster_id: str
    is_cluster_id_new: bool
    topics: Sequence[RebuiltTopic]
    deletions: Mapping[UUID, str]
    next_producer_id: int
    leader_epoch: int

    def record(self) -> bytes:
        """Return the one record of the rebuilt metadata store, with all of its keys."""
        puts: dict[str, bytes | None] = {
            CLUSTER: pack({"id": self.cluster_id}),
            PRODUCER_IDS_KEY: b"%d" % self.next_producer_id,
        }
        for rebuilt in self.topics:
            puts |= topic_puts(rebuilt.topic)
        for topic_id, name in self.deletions.items():
            puts[deletion_key(topic_id)] = pack({"name": name})
        # invariant authorization 7: Who may do what is in no log. What a damaged store has of it
        # may lack an entry that denies, so rebuilt metadata are closed, and not open.
        # tests/broker/inspect/test_rebuild.py
        puts |= closing_puts()
        return encode_record([1, puts])


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The options of the operator."""

    node_id: int = 1
    make_missing: bool = False
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Validated settings, by topic."""


def plan_rebuild(
    found: Iterable[Surveyed], salvaged: Salvaged, wishes: Wishes, rng: random.Random
) -> RebuildPlan:
    """Decide the contents of the new store. Raises `CannotRebuild`."""
    problems: list[str] = []
    kept: list[Surveyed] = []
    for partition in found:
        if _is_beyond(partition):
            problems.append(
                f"The directory {partition.where} is that of no partition: a topic has "
                f"{PARTITIONS_MAX} at most. Move it away."
            )
        elif partition.topic_id not in salvaged.deletions:
            kept.append(partition)
    by_topic: dict[str, list[Surveyed]] = {}
    for partition in kept:
        by_topic.setdefault(partition.where.topic, []).append(partition)
        identity = partition.identity
        if identity is not None and identity.where != partition.where:
            problems.append(
                f"The directory {partition.where} belongs to {identity.where}: move it away, or "
                "give it its name back."
            )
        if not (partition.has_segment or wishes.make_missing):
            problems.append(
                f"The directory {partition.where} has no segment of its log. Put back what was "
                "there, or give --make-missing to have it empty."
            )
    epoch = max([salvaged.max_epoch, *(partition.max_epoch for partition in kept)]) + EPOCH_GAP
    topics = [
        _topic(name, partitions, salvaged, wishes, epoch, rng, problems)
        for name, partitions in by_topic.items()
    ]
    for name in sorted(set(wishes.configs) - set(by_topic)):
        problems.append(f"There is no directory of a topic {name!r} to give settings to.")
    _check_ids(topics, problems)
    cluster_id = _cluster_id(kept, salvaged, problems)
    if problems:
        raise CannotRebuild(problems)
    largest = max((partition.max_producer_number for partition in kept), default=-1)
    return RebuildPlan(
        cluster_id=cluster_id or new_cluster_id(rng),
        is_cluster_id_new=cluster_id is None,
        topics=topics,
        deletions=salvaged.deletions,
        next_producer_id=max(largest + 1, salvaged.next_producer_id) + PRODUCER_ID_GAP,
        leader_epoch=epoch,
    )


def _is_beyond(partition: Surveyed) -> bool:
    """Return True if no topic can have a partition of this number."""
    counted = 0 if partition.identity is None else partition.identity.partition_count
    return partition.where.partition >= max(PARTITIONS_MAX, counted)


def _cluster_id(found: Sequence[Surveyed], salvaged: Salvaged, problems: list[str]) -> str | None:
    """Return the cluster id that all directories name, or that of the damaged store, or None."""
    said = {
        partition.identity.cluster_id: str(partition.where)
        for partition in found
        if partition.identity is not None
    }
    if len(said) > 1:
        examples = ", ".join(f"{where} of {cluster}" for cluster, where in sorted(said.items()))
        problems.append(
            f"There are directories of several clusters ({examples}): move away those that do not "
            "belong here."
        )
    return next(iter(said), salvaged.cluster_id)


def _check_ids(topics: Sequence[RebuiltTopic], problems: list[str]) -> None:
    names: dict[UUID, str] = {}
    for rebuilt in topics:
        other = names.setdefault(rebuilt.topic.topic_id, rebuilt.topic.name)
        if other != rebuilt.topic.name:
            problems.append(
                f"{other} and {rebuilt.topic.name} have the same topic id: one of them is a copy; "
                "move it away."
            )


def _topic(
    name: str,
    found: Sequence[Surveyed],
    salvaged: Salvaged,
    wishes: Wishes,
    leader_epoch: int,
    rng: random.Random,
    problems: list[str],
) -> RebuiltTopic:
    """Decide the contents of a topic, some of whose directories were found."""
    ids = {
        partition.topic_id: str(partition.where)
        for partition in found
        if partition.topic_id is not None
    }
    if len(ids) > 1:
        examples = ", ".join(f"{where} has {topic_id}" for topic_id, where in ids.items())
        problems.append(
            f"The directories of {name} belong to topics with different ids ({examples}): move "
            "away those of the older one."
        )
    known = [topic for topic in salvaged.topics.values() if topic.name == name]
    if ids:
        known = [topic for topic in known if topic.topic_id in ids]
    new_id = UUID(int=rng.getrandbits(128), version=4)
    topic_id = next(iter(ids), known[0].topic_id if known else new_id)
    identities = [partition.identity for partition in found if partition.identity is not None]
    indexes = {partition.where.partition for partition in found}
    count = max(
        [
            max(indexes) + 1,
            *(identity.partition_count for identity in identities),
            *(len(topic.partitions) for topic in known),
        ]
    )
    missing = sorted(set(range(count)) - indexes)
    if missing and not wishes.make_missing:
        shown = ", ".join(map(str, missing[:10])) + (", ..." if missing[10:] else "")
        problems.append(
            f"Topic {name} has {count} partitions, and there is no directory for: {shown}. Put "
            "them back, or give --make-missing to have them empty."
        )
    configs: Mapping[str, str] | None = None
    if identities:
        configs = max(identities, key=lambda identity: identity.partition_count).configs
    elif known:
        configs = known[0].configs
    elif name in INTERNAL_TOPICS:
        configs = {}  # the broker has its own settings for them (`log_config`)
    unknown = NO_COMPACTION if any(partition.is_compacted for partition in found) else NO_RETENTION
    here = (wishes.node_id,)
    partition = PartitionImage(
        leader=wishes.node_id, leader_epoch=leader_epoch, replicas=here, isr=here
    )
    return RebuiltTopic(
        topic=TopicImage(
            name=name,
            topic_id=topic_id,
            configs={**(unknown if configs is None else configs), **wishes.configs.get(name, {})},
            partitions=(partition,) * count,
            is_by_tag=any(identity.is_by_tag for identity in identities)
            or any(topic.is_by_tag for topic in known),
        ),
        size_bytes=sum(partition.size_bytes for partition in found),
        are_configs_known=configs is not None,
        missing=missing,
    )
