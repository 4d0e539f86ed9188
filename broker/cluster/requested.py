"""Elections that an administrator asks for: of preferred leaders, and unclean ones.

Any broker writes them. The write is guarded: the partition and the elected broker must be as the
image shows them. The rules are in `election.py`.
"""

import logging
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

import trio

from odradek.broker.cluster.election import elect, led_by_first, unclean
from odradek.broker.cluster.guarded_write import guarded_write
from odradek.broker.cluster.image import NO_LEADER, ClusterImage, PartitionImage
from odradek.broker.cluster.metadata import ClusterMetadata
from odradek.broker.cluster.store import BROKERS, write_of_partitions
from odradek.broker.environment.env import MetaStore
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import ErrorCode, KafkaError

LOGGER: Final = logging.getLogger(__name__)
AT_ONCE: Final = 50
"""The elections of one transaction. Its guards need room, too."""

Outcomes = dict[TopicPartition, KafkaError | None]


class RequestedElections:
    """The elections that this broker writes for its clients."""

    def __init__(self, store: MetaStore, metadata: ClusterMetadata) -> None:
        self._store = store
        self._metadata = metadata
        self.unclean_count = 0
        """The elections of a leader that may lack acknowledged records."""

    @property
    def all_partitions(self) -> list[TopicPartition]:
        """Every partition of the cluster."""
        topics = self._metadata.image.topics
        return [
            TopicPartition(name, index)
            for name, topic in topics.items()
            for index in range(len(topic.partitions))
        ]

    async def elect(
        self,
        wanted: Iterable[TopicPartition],
        *,
        is_unclean: bool,
        candidate: int = NO_LEADER,
        timeout_ms: int,
    ) -> Outcomes:
        """Elect a leader for each partition. Return None or an error for each.

        The image of this broker has the elections on return. `candidate` is the replica that an
        unclean election is to elect, if it is not to be the first one. The errors:
        UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
        ELIGIBLE_LEADERS_NOT_AVAILABLE, REQUEST_TIMED_OUT, and those of the metadata store.
        """
        rest = dict.fromkeys(wanted)
        outcomes: Outcomes = {}
        with trio.move_on_after(max(0, timeout_ms) / 1000):
            if is_unclean:
                try:
                    await self._hear_of_brokers()
                except KafkaError as error:
                    return dict.fromkeys(rest, error)
            while rest:
                image = self._metadata.image
                planned: dict[TopicPartition, PartitionImage] = {}
                for where in list(islice(rest, AT_ONCE)):
                    try:
                        planned[where] = _planned(image, where, is_unclean, candidate)
                    except KafkaError as error:
                        outcomes[where] = error
                        del rest[where]
                try:
                    is_written, revision = await self._write(image, planned)
                except KafkaError as error:
                    outcomes |= dict.fromkeys(rest, error)
                    return outcomes
                await self._metadata.wait_reached(revision)
                if is_written:  # else something has changed: plan again
                    for where, elected in planned.items():
                        self.unclean_count += _is_loss(image.partition(*where), where, elected)
                        outcomes[where] = None
                        del rest[where]
        late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The election may still be written.")
        return outcomes | dict.fromkeys(rest, late)

    async def _hear_of_brokers(self) -> None:
        """Wait until the image has all brokers: one may have come back with a whole replica.

        Raises KafkaError if the metadata store does not answer.
        """
        brokers, _ = await self._store.range(BROKERS)
        await self._metadata.wait_reached(max(broker.mod_revision for broker in brokers.values()))

    async def _write(
        self, image: ClusterImage, planned: Mapping[TopicPartition, PartitionImage]
    ) -> tuple[bool, int]:
        """Write elections if nothing that they rest on has changed. Return as `MetaStore.txn`."""
        if not planned:
            await trio.lowlevel.checkpoint()
            return True, image.revision
        return await guarded_write(self._store, *write_of_partitions(image, planned))


def _planned(
    image: ClusterImage, where: TopicPartition, is_unclean: bool, candidate: int
) -> PartitionImage:
    """Return a partition as it is to be written. Raises KafkaError."""
    topic = image.topics.get(where.topic)
    partition = image.partition(*where)
    if topic is None or partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {where}.")
    brokers = {broker.node_id: broker for broker in image.brokers}
    if not is_unclean:
        if partition.leader == partition.replicas[0]:
            raise _not_needed(f"The preferred leader of {where} leads it.")
        changed = led_by_first(partition, brokers)
        if changed is None:
            raise KafkaError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"The preferred leader of {where}, broker {partition.replicas[0]}, is away or not "
                "in sync.",
            )
        return changed
    if partition.leader != NO_LEADER:
        raise _not_needed(f"Broker {partition.leader} leads {where}.")
    clean = elect(partition, brokers, topic.min_insync_replicas or 1)
    if clean is not None:
        return clean
    changed = unclean(partition, brokers, candidate)
    if changed is None:
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"No such replica of {where} is there."
        )
    return changed


def _is_loss(before: PartitionImage | None, where: TopicPartition, elected: PartitionImage) -> bool:
    """Return True if acknowledged records may be lost by an election, and log it."""
    assert before is not None, where
    is_loss = elected.leader not in (*before.isr, *before.elr)
    if is_loss:
        LOGGER.error(
            "%s: broker %d leads, as an administrator asked for it; acknowledged records that it "
            "lacks are lost (in sync were %s)",
            where,
            elected.leader,
            list(before.isr),
        )
    return is_loss


def _not_needed(message: str) -> KafkaError:
    return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, message)
