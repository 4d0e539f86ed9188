"""The roles of this broker: what follows for its replicas from a new image of the cluster.

For each partition with a replica here, the image says that this broker leads it, follows another
broker, or waits for a leader. `apply` brings that about, in the order in which the images come:

- A log is made when the image has a new topic, and removed when the topic is gone. So is the log of
  a replica that a reassignment adds or removes. It gets other settings when those of the topic or
  of the broker have changed.
- Lead: only in an epoch that was written after this broker registered. An older one belongs to an
  earlier run of it (KAFKA-10527).
- Follow: the fetcher of that leader copies its batches.
- A partition of a state topic: its coordinator loads when the lead begins, and unloads in the same
  step in which it ends, so that an older tenure never writes in a newer lead.
"""

import logging
from collections.abc import Callable
from itertools import zip_longest
from typing import Final, Protocol
from uuid import UUID

import trio

from odradek.broker.cluster.image import (
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
    changed_topics,
)
from odradek.broker.cluster.topic_logs import LocalTopicLogs
from odradek.broker.partitions.in_sync_view import InSyncView
from odradek.broker.partitions.leader import Leader
from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import KafkaError
from odradek.protocol.state_topics import INTERNAL_TOPICS

LOGGER: Final = logging.getLogger(__name__)
RETRY_SECONDS: Final = 1.0
NOT_REGISTERED: Final = -1


class Coordinators(Protocol):
    """The coordinators of this broker."""

    async def load(self, topic: str, index: int) -> None:
        """Load what one partition of a state topic keeps. A failure is logged."""

    def unload(self, topic: str, index: int) -> None:
        """Stop to coordinate what one partition of a state topic keeps."""

    async def forget_topic(self, topic: str, topic_id: UUID) -> None:
        """Delete the offsets that groups stored for a deleted topic. A failure is logged."""


class Followers(Protocol):
    """Copies from leaders to the replicas of this broker."""

    async def follow(self, partition: Partition, leader: int) -> None:
        """Copy from a leader, in the partition's leader epoch, until the next call."""

    async def leave(self, partition: Partition) -> None:
        """Copy no more; on return nothing of it is under way."""


class Roles:
    """Applies images to the partitions of this broker."""

    def __init__(
        self,
        *,
        node_id: int,
        partitions: Partitions,
        logs: LocalTopicLogs,
        coordinators: Coordinators,
        followers: Followers,
        is_own: Callable[[BrokerImage], bool],
        spawn: Callable[..., None],
        on_lead: Callable[[Leader], None] | None = None,
    ) -> None:
        """`is_own` is `Session.is_own`. `spawn` starts a task: an async function and arguments.

        `on_lead` is called with each lead that begins.
        """
        self._on_lead = on_lead
        self._is_own = is_own
        self._node_id = node_id
        self._partitions = partitions
        self._logs = logs
        self._coordinators = coordinators
        self._followers = followers
        self._spawn = spawn
        self._epoch = NOT_REGISTERED
        self._applying = trio.Lock()
        self._image = ClusterImage(cluster_id="")
        self._has_resigned = False
        self._to_apply_again: set[str] = set()
        """The topics whose logs could not be made."""
        self.leads_in_old_epochs = False
        """True if no election could be written: the disk of the embedded store is full."""

    async def apply(self, old: ClusterImage, new: ClusterImage) -> None:
        """Take the roles of a new image. The logs of the old one are open."""
        async with self._applying:
            here = new.broker(self._node_id)
            epoch = here.epoch if here is not None and self._is_own(here) else NOT_REGISTERED
            # This broker has registered anew, or its registration has ended. What it may lead
            # depends on its epoch, so every partition is looked at again, also those that have not
            # changed.
            is_all_new = epoch != self._epoch
            self._epoch = epoch
            self._image = new
            # Settings first: the logs that are made below must have the new ones.
            is_configured = old.broker_configs == new.broker_configs
            if not is_configured and self._logs.settings.take(new.broker_configs):
                for topic in new.topics.values():
                    self._logs.configure(topic)
            for before in changed_topics(new, old):
                after = new.topics.get(before.name)
                # A topic that was deleted and made anew between two images has another id. Without
                # the comparison the new topic would begin with the records of the old one.
                if after is None or after.topic_id != before.topic_id:
                    await self._remove(before)
            for topic in new.topics.values() if is_all_new else changed_topics(old, new):
                await self._apply_topic(old.topics.get(topic.name), topic, is_all_new=is_all_new)

    async def begin_anew(self, where: TopicPartition) -> None:
        """Set a replica's log aside, and follow with an empty one; another broker leads."""
        async with self._applying:
            partition = self._partitions.find(where)
            # The copy ends before the log is set aside: an answer that is under way would be
            # written into the directory that is moved away.
            if partition is not None:
                await self._followers.leave(partition)
            await self._partitions.give_up(where)
            topic = self._image.topics.get(where.topic)
            if topic is not None:
                await self._apply_topic(None, topic, is_all_new=True)

    async def resign(self, since: float) -> None:
        """End the leads whose followers have not been heard after `since`.

        Called when this broker's lease may have ended: another broker may lead by now. Clients go
        and ask others then, and do not wait here until their time is over.
        """
        async with self._applying:
            for partition in self._partitions.all():
                leader = partition.leading
                # A partition with one replica can have no other leader, whatever became of the
                # lease.
                if leader is None or leader.view.is_alone:
                    continue
                # Enough followers have fetched since the last sign of the lease. Had another broker
                # been elected, they would fetch from that one. So this lead still holds.
                if not leader.view.is_followed(since, partition.config.min_insync_replicas):
                    LOGGER.warning("%r: the lead ends, as this broker is cut off", partition)
                    self._end_lead(partition, partition.leader_epoch)
                    self._has_resigned = True

    async def lead_again(self) -> None:
        """Take back the leads that `resign` has ended, as far as no other broker was elected."""
        async with self._applying:
            # The image has not changed, so `apply` would find nothing to do.
            if self._has_resigned:
                self._has_resigned = False
                for topic in self._image.topics.values():
                    await self._apply_topic(None, topic, is_all_new=True)

    async def lead_in_old_epochs(self, image: ClusterImage) -> None:
        """Lead what the image says although the epochs are those of the last run.

        Only a store on this broker's own disk can be so full that no election can be written. Then
        nothing can be appended either, but reads and deletions must be served.
        """
        async with self._applying:
            self.leads_in_old_epochs = True
            for topic in image.topics.values():
                await self._apply_topic(None, topic, is_all_new=True)

    def end(self) -> None:
        """End every lead that depends on followers: nothing will reach them any more.

        Whatever waits for them would otherwise wait for ever, also what must not be cancelled.
        """
        for partition in self._partitions.all():
            leader = partition.leading
            # A lead without followers goes on: what is being appended still reaches this disk.
            if leader is not None and not leader.view.is_alone:
                partition.end_lead(partition.leader_epoch)

    async def _apply_topic(
        self, before: TopicImage | None, topic: TopicImage, *, is_all_new: bool
    ) -> None:
        is_same = before is not None and before.topic_id == topic.topic_id
        old = before.partitions if before is not None and is_same and not is_all_new else ()
        # A partition that has not changed is the same object, so one change of a topic of many
        # partitions costs a glance at each.
        changed = [
            index
            for index, (partition, earlier) in enumerate(zip_longest(topic.partitions, old))
            if partition is not earlier and partition != earlier
        ]
        here = self._logs.here(topic, changed)
        missing = [
            index
            for index in here
            if not self._has_log(topic, index)
            # A log that is offline is damaged or lost. An empty one in its place would be elected,
            # and its records would be gone.
            and not self._partitions.is_offline(topic.name, index)
        ]
        if missing:
            await self._make_logs(topic, missing)
        if before is None or _settings_of(before) != _settings_of(topic):
            self._logs.configure(topic)
        # Logs and settings come before the roles: a lead that begins accepts records at once.
        for index in here:
            await self._apply_partition(topic.name, index, topic.partitions[index])
        for index in changed:
            # A move has removed this replica. The image says so only once all new replicas are in
            # sync, so no record is lost with the log.
            is_here = self._node_id in topic.partitions[index].replicas
            if not is_here and self._has_log(topic, index):
                await self._remove_replica(topic, index)

    async def _remove_replica(self, topic: TopicImage, index: int) -> None:
        """Remove the log of a partition that has moved to other brokers."""
        partition = self._partitions.find(TopicPartition(topic.name, index))
        assert partition is not None, (topic.name, index)
        LOGGER.info("%r has moved to other brokers", partition)
        self._end_lead(partition, topic.partitions[index].leader_epoch)
        await self._followers.leave(partition)
        async with self._logs.changing:
            await self._logs.delete(topic, [index])

    def _has_log(self, topic: TopicImage, index: int) -> bool:
        """Return True if the log is here, and not that of a topic that lost a race of creators.

        A broker makes the logs of a topic before it writes the topic, and removes them if another
        broker was quicker. Until then they are here under the same name.
        """
        found = self._partitions.find(TopicPartition(topic.name, index))
        return found is not None and found.topic_id == topic.topic_id

    async def _make_logs(self, topic: TopicImage, indexes: list[int]) -> None:
        async with self._logs.changing:
            # The broker that creates a topic makes its own logs before the image has it.
            missing = [index for index in indexes if not self._has_log(topic, index)]
            try:
                await self._logs.create(topic, missing)
            except KafkaError as error:
                # The disk is full, say. The image does not change again for that, so a task tries
                # it again: one for each topic, however many images come meanwhile.
                LOGGER.error("%s has no replicas on this broker yet: %s", topic.name, error)
                if topic.name not in self._to_apply_again:
                    self._to_apply_again.add(topic.name)
                    self._spawn(self._apply_topic_again, topic.name)

    async def _apply_topic_again(self, name: str) -> None:
        """Make the logs of a topic that the disk had no room for."""
        await trio.sleep(RETRY_SECONDS)
        async with self._applying:
            self._to_apply_again.discard(name)
            topic = self._image.topics.get(name)
            if topic is not None:
                await self._apply_topic(None, topic, is_all_new=True)

    async def _apply_partition(self, topic: str, index: int, image: PartitionImage) -> None:
        partition = self._partitions.find(TopicPartition(topic, index))
        # Its log is offline, or could not be made. It takes its role when it is there.
        if partition is None:
            return
        if self._leads(image):
            leader = partition.leading
            # The lead goes on, with another in-sync set or other replicas. A new `Leader` would
            # forget how far the followers are, and the high watermark would stand still until they
            # fetch.
            if leader is not None and leader.leader_epoch == image.leader_epoch:
                leader.view.moves(image.replicas, image.adding, trio.current_time())
                leader.view.note_changed(image.isr, image.epoch, image.elr)
                leader.update_visible()
                partition.marks.followers.notify()
            else:
                # Nothing of the former leader may be written after the first append of this lead:
                # the log would have its batches behind those of a newer epoch.
                await self._followers.leave(partition)
                self._begin_lead(partition, image)
                await self._load(partition)
            return
        self._end_lead(partition, image.leader_epoch)
        # It may be this broker although it does not lead: in an epoch of an earlier run. It waits
        # for the election that its registration causes, and has nobody to copy from.
        if image.leader in (self._node_id, -1):
            await self._followers.leave(partition)
        else:
            await self._followers.follow(partition, image.leader)

    def _leads(self, image: PartitionImage) -> bool:
        if image.leader != self._node_id or self._epoch == NOT_REGISTERED:
            return False
        # An epoch that was written before the registration belongs to an earlier run of this
        # broker, which may have had records that this one has lost (KAFKA-10527).
        return image.epoch > self._epoch or self.leads_in_old_epochs

    def _begin_lead(self, partition: Partition, image: PartitionImage) -> None:
        topic, index = partition.topic, partition.index
        # Two elections between two images: the tenure of the first must not write in the lead of
        # the second, whose log another leader has changed meanwhile (KAFKA-15468).
        if topic in INTERNAL_TOPICS:
            self._coordinators.unload(topic, index)
        partition.begin_lead(
            InSyncView.over(
                node_id=self._node_id,
                leader_epoch=image.leader_epoch,
                replicas=image.replicas,
                isr=image.isr,
                elr=image.elr,
                partition_epoch=image.epoch,
                adding=image.adding,
                now=trio.current_time(),
            )
        )
        if self._on_lead is not None and partition.leading is not None:
            self._on_lead(partition.leading)

    def _end_lead(self, partition: Partition, leader_epoch: int) -> None:
        # In the same step as the lead, and before it: a tenure that outlives its lead could decide.
        if partition.leading is not None and partition.topic in INTERNAL_TOPICS:
            self._coordinators.unload(partition.topic, partition.index)
        partition.end_lead(leader_epoch)

    async def _load(self, partition: Partition) -> None:
        """Load the partition of a coordinator, in the background if there is much to read."""
        if partition.topic not in INTERNAL_TOPICS:
            return
        # Reading may take seconds, and other partitions wait for their roles.
        if partition.log_end_offset:
            self._spawn(self._coordinators.load, partition.topic, partition.index)
        else:
            # A client that finds the new topic in the image asks the coordinator at once.
            await self._coordinators.load(partition.topic, partition.index)

    async def _remove(self, topic: TopicImage) -> None:
        here = self._logs.here(topic)
        # All copies end before the first directory goes: no write may find its log removed.
        for index in here:
            partition = self._partitions.find(TopicPartition(topic.name, index))
            if partition is not None:
                await self._followers.leave(partition)
        async with self._logs.changing:
            await self._logs.delete(topic, here)
        self._spawn(self._coordinators.forget_topic, topic.name, topic.topic_id)


def _settings_of(topic: TopicImage) -> tuple[object, ...]:
    """Return what decides how the logs of a topic are configured."""
    return topic.topic_id, topic.configs, topic.min_insync_replicas
