"""This broker as a member of the cluster: its registration, its roles, its part in elections.

One node runs all of it, too. Its metadata store is on its own disk, it is the only broker, and so
the controller; it elects itself for every partition, in a new leader epoch at each start.
"""

import logging
from collections.abc import Callable
from typing import Final

import trio

from odradek.broker.cluster.controller import Controller
from odradek.broker.cluster.image import BrokerImage, ClusterImage
from odradek.broker.cluster.known_brokers import KnownBrokers
from odradek.broker.cluster.metadata import ClusterMetadata
from odradek.broker.cluster.peer_network import PeerNetwork
from odradek.broker.cluster.power_loss import leave_sets
from odradek.broker.cluster.requested import RequestedElections
from odradek.broker.cluster.requested_moves import RequestedMoves
from odradek.broker.cluster.session import Session
from odradek.broker.cluster.topic_logs import LocalTopicLogs
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.environment.env import Env, LeaseExpired
from odradek.broker.membership.roles import Coordinators, Roles
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.replication.damaged import DamagedReplicas
from odradek.broker.replication.fetchers import ReplicaFetchers
from odradek.broker.replication.in_sync import InSync
from odradek.broker.replication.refusals import Refusals
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import KafkaError

LOGGER: Final = logging.getLogger(__name__)
DISK_CHECK_SECONDS: Final = 0.5
CUT_OFF_CHECK_SECONDS: Final = 0.5
HANDOVER_SECONDS: Final = 10.0
"""The time for which a stopping broker waits until others lead what it leads."""


class DiskFailed(OSError):
    """The disk of a replica failed: one sentence for a person."""


class Membership:
    """The parts of a broker that depend on the cluster."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        metadata: ClusterMetadata,
        partitions: Partitions,
        *,
        directory_id: str,
    ) -> None:
        self._env = env
        self._config = config
        self._metadata = metadata
        self._partitions = partitions
        self.session = Session(
            store=env.meta,
            metadata=metadata,
            directory_id=directory_id,
            timeout_seconds=config.broker_session_timeout_ms / 1000,
            before_registering=self._leave_sets,
        )
        self.elections = RequestedElections(env.meta, metadata)
        self.moves = RequestedMoves(env.meta, metadata)
        self.known_brokers = KnownBrokers(env.meta, metadata)
        self.in_sync = InSync(
            store=env.meta,
            metadata=metadata,
            session=self.session,
            max_lag_seconds=config.replica_lag_time_max_ms / 1000,
        )

    async def run(
        self,
        here: BrokerImage,
        logs: LocalTopicLogs,
        coordinators: Coordinators,
        network: PeerNetwork,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Register, and take part until cancelled. Started when this broker has its roles."""
        metadata, session = self._metadata, self.session
        followers = ReplicaFetchers(
            node_id=here.node_id,
            network=network,
            clock=self._env.clock,
            image=lambda: metadata.image,
            is_own=session.is_own,
        )
        async with trio.open_nursery() as nursery:
            roles = Roles(
                node_id=here.node_id,
                partitions=self._partitions,
                logs=logs,
                coordinators=coordinators,
                followers=followers,
                is_own=session.is_own,
                spawn=nursery.start_soon,
                # The lease of a broker that is alone does not end, and nothing follows it.
                on_lead=self.in_sync.watch if here.peer_port else None,
            )

            async def lead_anyway() -> None:
                await roles.lead_in_old_epochs(metadata.image)

            controller = Controller(
                store=self._env.meta,
                metadata=metadata,
                session=session,
                node_id=here.node_id,
                on_full_disk=lead_anyway,
            )
            try:
                await nursery.start(followers.run)
                nursery.start_soon(metadata.run, roles.apply)
                nursery.start_soon(metadata.replace_silent_watches)
                nursery.start_soon(logs.note_made)
                await session.register(here)
                nursery.start_soon(controller.run)
                if here.peer_port:
                    nursery.start_soon(session.run)
                    nursery.start_soon(self.in_sync.run)
                    nursery.start_soon(self._refusals(network).run)
                    nursery.start_soon(self._end_with_the_disk)
                    nursery.start_soon(self._damaged_replicas(roles).run)
                    nursery.start_soon(self._resign_when_cut_off, roles)
                await self._until_none(self._waits_for_its_lead)
                task_status.started()
                await trio.sleep_forever()
            finally:
                roles.end()

    async def _leave_sets(self) -> bool:
        """See `leave_sets`. Nothing is left if the logs here are whole. Raises KafkaError."""
        notes = self._partitions.run_notes
        if not notes.lacks_records and not notes.missing:
            return True
        have_left = await leave_sets(
            self._env.meta, self._metadata, self._config.node_id, notes.may_lack
        )
        if have_left:
            await notes.note_none_relies_on_this()
        return have_left

    async def _resign_when_cut_off(self, roles: Roles) -> None:
        """End leads while the lease may have ended and followers are not heard, either."""
        while True:
            await trio.sleep(CUT_OFF_CHECK_SECONDS)
            if not self.session.has_lapsed:
                await roles.lead_again()
                continue
            await roles.resign(trio.current_time() - self._config.broker_session_timeout_ms / 1000)

    async def _end_with_the_disk(self) -> None:
        """End this broker when the disk of a replica fails: others lead then (KAFKA-10778).

        A full disk is no failure. A partition without other replicas stays offline alone, as on one
        node. Raises DiskFailed.
        """
        while True:
            await trio.sleep(DISK_CHECK_SECONDS)
            for partition in self._partitions.troubles.partitions():
                log = partition.log
                if log.failure is None or log.is_damaged:
                    continue
                image = self._metadata.image.partition(partition.topic, partition.index)
                if image is not None and len(image.replicas) > 1:
                    raise DiskFailed(f"{log.name}: {log.failure.strerror}")

    def _damaged_replicas(self, roles: Roles) -> DamagedReplicas:
        return DamagedReplicas(
            store=self._env.meta,
            metadata=self._metadata,
            session=self.session,
            partitions=self._partitions,
            node_id=self._config.node_id,
            begin_anew=roles.begin_anew,
        )

    def _refusals(self, network: PeerNetwork) -> Refusals:
        return Refusals(
            network=network,
            store=self._env.meta,
            metadata=self._metadata,
            session=self.session,
            node_id=self._config.node_id,
        )

    async def _until_none(self, is_such: Callable[[TopicPartition], bool]) -> None:
        """Wait until none of the partitions that this broker leads, as the image says, is such.

        An election of many takes many images. Each is asked about one partition, and not about all.
        """
        node_id = self._config.node_id
        while some := [where for where in led_by(self._metadata.image, node_id) if is_such(where)]:
            for where in some:
                while is_such(where):
                    await self._metadata.next_step()

    def _waits_for_its_lead(self, where: TopicPartition) -> bool:
        """Return True if this broker is said to lead a partition, and does not lead it yet."""
        image = self._metadata.image.partition(*where)
        partition = self._partitions.find(where)
        is_led_here = image is not None and image.leader == self._config.node_id
        return is_led_here and partition is not None and partition.leading is None

    async def leave(self) -> None:
        """Hand the leads of this broker to others, as far as there are any, before it stops."""
        image = self._metadata.image
        node_id = self._config.node_id
        others = [broker for broker in image.brokers if broker.node_id != node_id]
        if not others or not self.session.epoch:
            return
        try:
            with trio.move_on_after(HANDOVER_SECONDS):
                await self.session.leave()
                await self._until_none(self._could_hand_over)
        except (KafkaError, LeaseExpired) as error:
            LOGGER.warning("the other brokers do not know that this one stops: %s", error)

    def _could_hand_over(self, where: TopicPartition) -> bool:
        """Return True if another in-sync replica could lead what this broker leads."""
        image, node_id = self._metadata.image, self._config.node_id
        partition = image.partition(*where)
        if partition is None or partition.leader != node_id:
            return False
        others = (image.broker(node) for node in partition.isr if node != node_id)
        return any(other is not None and not other.is_leaving for other in others)

    async def end(self) -> None:
        """End the registration, so that nobody waits for the lease."""
        try:
            with trio.move_on_after(1.0):
                await self.session.close()
        except KafkaError as error:
            LOGGER.warning("the registration of this broker ends with its lease: %s", error)


def led_by(image: ClusterImage, node_id: int) -> list[TopicPartition]:
    """Return the partitions that a broker leads, as the image says."""
    return [
        TopicPartition(topic.name, index)
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if partition.leader == node_id
    ]
