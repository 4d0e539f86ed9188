"""The controller: the broker that elects leaders and tidies up what brokers leave behind.

Every broker runs one, and stands for the office whenever the image shows that it is vacant: the key
`/controller`, under the lease of the broker that has it. The revision that created the key guards
each write of the controller, so that a deposed one changes nothing.

What is to do follows from the image (`election.py`). The controller remembers only the last image
in which nothing was to do: as long as the brokers are the same, it looks at no topic that has not
changed since.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

import trio

from odradek.broker.cluster.election import elections, preferred
from odradek.broker.cluster.image import (
    NO_LEADER,
    ClusterImage,
    PartitionImage,
    TopicImage,
    changed_topics,
)
from odradek.broker.cluster.metadata import ClusterMetadata
from odradek.broker.cluster.reassignment import completions
from odradek.broker.cluster.session import Session
from odradek.broker.cluster.store import CONTROLLER, in_steps, leader_of, pack, write_of_partitions
from odradek.broker.cluster.unaware_brokers import UnawareWatch
from odradek.broker.environment.env import Compare, LeaseExpired, MetaStore
from odradek.broker.storage.reserve import DISK_FULL
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import KafkaError

LOGGER: Final = logging.getLogger(__name__)
RETRY_SECONDS: Final = 0.2
PREFERRED_AFTER_SECONDS: Final = 5.0
"""The time for which nothing was elected before preferred leaders get their place back."""

Elected = Mapping[TopicPartition, PartitionImage]


class Controller:
    """This broker's part in electing leaders."""

    def __init__(
        self,
        *,
        store: MetaStore,
        metadata: ClusterMetadata,
        session: Session,
        node_id: int,
        on_full_disk: Callable[[], Awaitable[None]],
    ) -> None:
        """`on_full_disk` is called if no election can be written, as the store's disk is full."""
        self._store = store
        self._metadata = metadata
        self._session = session
        self._node_id = node_id
        self._on_full_disk = on_full_disk
        self._settled: ClusterImage | None = None
        """The last image that needed no election and ended no move."""
        self._in_place: ClusterImage | None = None
        """The last image in which no preferred leader could have its place back."""
        self._unaware = UnawareWatch()

    async def run(self) -> None:
        """Stand for the office, and hold it while elected. Never returns."""
        while True:
            image = self._metadata.image
            self._unaware.look(image)
            try:
                await self.step(image)
            except (KafkaError, LeaseExpired) as error:
                LOGGER.warning("the controller cannot write to the metadata store: %s", error)
                await trio.sleep(RETRY_SECONDS)
                continue
            await self._next_image(image)

    async def step(self, image: ClusterImage) -> None:
        """Write elections and ends of moves. Raises KafkaError, `LeaseExpired`."""
        try:
            if image.controller_id == NO_LEADER:
                await self._stand()
            elif image.controller_id == self._node_id:
                # invariant administration 4: The state of a move is in the partition's key, so any
                # controller completes it. The write that ends it is an election: what a removed
                # replica reported counts no more.
                # plant a move is forgotten with the broker that began it
                topics = _changed_since(self._settled, image)
                due = completions(image, _min_isr, topics)
                due |= elections(image, _min_isr, topics)
                if not due:
                    self._settled = image
                await self._write(image, due)
        except KafkaError as error:
            if not _is_full(error):
                raise
            # A broker with a full disk must still serve reads and deletions. Nothing is appended in
            # the old epochs meanwhile, because the logs are on the same disk.
            LOGGER.warning("the disk is full, so leader epochs stay as they were: %s", error)
            await self._on_full_disk()

    async def _next_image(self, image: ClusterImage) -> None:
        """Wait for another image, or until preferred leaders may get their place back."""
        with trio.move_on_after(PREFERRED_AFTER_SECONDS):
            await self._metadata.wait_changed(image)
            return
        if image.controller_id == self._node_id:
            due = preferred(image, _changed_since(self._in_place, image))
            if not due:
                self._in_place = image
            try:
                await self._write(image, due)
            except KafkaError as error:
                LOGGER.warning("preferred leaders were not elected: %s", error)

    async def _stand(self) -> None:
        """Become the controller, unless another broker is quicker."""
        vacant = Compare(key=CONTROLLER, mod_revision=0)
        _, revision = await self._store.txn(
            [vacant, self._session.guard],
            {CONTROLLER: pack({"id": self._node_id})},
            lease=self._session.lease,
        )
        await self._metadata.wait_reached(revision)

    async def _write(self, image: ClusterImage, elected: Elected) -> None:
        """Write elections, and wait until the image has them."""
        for step in in_steps(elected, self._store.max_operations, leader_of):
            revision = await self._write_some(image, step)
            await self._metadata.wait_reached(revision)

    async def _write_some(self, image: ClusterImage, elected: Elected) -> int:
        """Write some elections if nothing that they rest on has changed. Return the revision."""
        for where, partition in elected.items():
            before = image.partition(*where)
            if before is not None and not before.isr:
                LOGGER.error(
                    "%s: all in-sync replicas lost power with log.flush=os; broker %d, which "
                    "led last, leads again, and acknowledged records may be lost",
                    where,
                    partition.leader,
                )
        compares, puts = write_of_partitions(image, elected)
        compares.append(Compare(key=CONTROLLER, create_revision=image.controller_epoch))
        _, revision = await self._store.txn(compares, puts)
        return revision


def _changed_since(settled: ClusterImage | None, image: ClusterImage) -> Collection[TopicImage]:
    """Return the topics that may need something, if nothing was to do in an earlier image.

    What a partition needs follows from its topic and from the brokers alone.
    """
    if settled is None or settled.brokers != image.brokers:
        return image.topics.values()
    return changed_topics(settled, image)


def _min_isr(topic: TopicImage) -> int:
    return topic.min_insync_replicas or 1


def _is_full(error: KafkaError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in DISK_FULL
