"""Three replicas of one partition, each on a disk in memory, without a network between them.

A fetch is the request that the fetcher makes, answered by the leader's own handler, and taken by
the follower's `Follower`. Elections are what a test says they are.
"""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import trio

from odradek.broker.api.context import Core, RequestContext
from odradek.broker.api.replica_fetch import replica_fetch
from odradek.broker.cluster.image import BrokerImage, ClusterImage, TopicImage
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.partitions.follower import Follower
from odradek.broker.partitions.in_sync_view import InSyncView
from odradek.broker.partitions.partition import Partition
from odradek.broker.replication.replica_sessions import ReplicaSessions
from odradek.broker.storage.config import LogConfig
from odradek.protocol.apis.fetch import (
    FETCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from tests.broker.storage.samples import TOPIC, TOPIC_ID, Machine, batch

NODES = (1, 2, 3)


@dataclass
class Replica:
    """One replica, and the broker that has it."""

    node_id: int
    machine: Machine
    partition: Partition
    epoch: int
    copy: Follower | None = None
    sessions: ReplicaSessions = field(default_factory=ReplicaSessions)


@dataclass
class Replicas:
    """The replicas of one partition, the leader of which changes as `elect` says."""

    replicas: dict[int, Replica] = field(default_factory=dict)
    leader: int = 1
    leader_epoch: int = 0
    isr: tuple[int, ...] = NODES
    considered: list[Partition] = field(default_factory=list)
    config: LogConfig = field(default_factory=lambda: LogConfig(min_insync_replicas=2))

    @classmethod
    async def start(cls, config: LogConfig | None = None) -> "Replicas":
        made = cls() if config is None else cls(config=config)
        for node_id in NODES:
            machine = Machine(config=made.config)
            partition = await made._open(machine)
            made.replicas[node_id] = Replica(node_id, machine, partition, epoch=1)
        await made.elect(1)
        return made

    @staticmethod
    async def _open(machine: Machine) -> Partition:
        partition = await machine.start()
        partition.end_lead(partition.leader_epoch)
        return partition

    def __getitem__(self, node_id: int) -> Partition:
        return self.replicas[node_id].partition

    async def elect(
        self, leader: int, *, isr: tuple[int, ...] | None = None, absent: tuple[int, ...] = ()
    ) -> None:
        """Elect a leader in a new epoch. Brokers that are `absent` do not hear of it."""
        self.leader, self.leader_epoch = leader, self.leader_epoch + 1
        self.isr = isr or self.isr
        for node_id, replica in self.replicas.items():
            if node_id not in absent:
                await self.hear(replica)

    async def hear(self, replica: Replica) -> None:
        """Let a broker take its role in the present epoch."""
        if replica.copy is not None:
            await replica.copy.end()
            replica.copy = None
        if replica.node_id == self.leader:
            replica.partition.begin_lead(
                InSyncView.over(
                    node_id=replica.node_id,
                    leader_epoch=self.leader_epoch,
                    replicas=NODES,
                    isr=self.isr,
                    partition_epoch=self.leader_epoch,
                    now=trio.current_time(),
                )
            )
        else:
            replica.partition.end_lead(self.leader_epoch)
            replica.copy = Follower(replica.partition)

    async def restart(self, node_id: int, *, power_loss: bool = False) -> None:
        """Kill a broker and start it again: it registers anew, and hears of the present epoch."""
        replica = self.replicas[node_id]
        if power_loss:
            replica.machine.disk.crash()
        else:
            replica.machine.disk.kill()
        replica.partition = await self._open(replica.machine)
        replica.epoch += 1
        replica.copy = None
        if node_id != self.leader:
            await self.hear(replica)

    def append(self, *values: str) -> int:
        """Append to the leader's log. Return the offset behind it."""
        return self[self.leader].leader().append_from_client(batch(*values)).last_offset + 1

    async def ask(self, follower: int, *, broker_epoch: int | None = None) -> PartitionData:
        """Send a follower's fetch to the leader, and return the answer."""
        replica = self.replicas[follower]
        copy = replica.copy
        assert copy is not None, follower
        log = copy.partition.log
        copy.fetch_offset = log.log_end_offset
        epoch = replica.epoch if broker_epoch is None else broker_epoch
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=follower, replica_epoch=epoch),
            max_wait_ms=0,
            min_bytes=1,
            topics=(
                FetchTopic(
                    topic_id=TOPIC_ID,
                    partitions=(
                        FetchPartition(
                            partition=0,
                            current_leader_epoch=copy.leader_epoch,
                            fetch_offset=copy.fetch_offset,
                            last_fetched_epoch=copy.last_epoch,
                            partition_max_bytes=1_000_000,
                        ),
                    ),
                ),
            ),
        )
        response = await replica_fetch(self._context(), request)
        if response.error_code:
            return PartitionData(
                partition_index=0,
                error_code=response.error_code,
                high_watermark=-1,
                aborted_transactions=None,
                records=None,
            )
        return response.responses[0].partitions[0]

    def _context(self) -> RequestContext:
        topic = TopicImage(name=TOPIC, topic_id=TOPIC_ID, configs={}, partitions=())
        image = ClusterImage(
            cluster_id="c",
            brokers=tuple(
                BrokerImage(node_id=node, host="h", port=1, epoch=replica.epoch)
                for node, replica in self.replicas.items()
            ),
        ).with_topics([topic])
        core = SimpleNamespace(
            config=BrokerConfig(),
            cluster=SimpleNamespace(image=image),
            partitions=self.replicas[self.leader].machine.partitions,
            in_sync=SimpleNamespace(consider=self.considered.append),
            replica_sessions=self.replicas[self.leader].sessions,
        )
        return RequestContext(
            core=cast(Core, core), api_version=FETCH.max_version, client_id="", host=""
        )

    async def take(self, follower: int, data: PartitionData) -> None:
        """Have a follower take an answer, and flush what it wrote."""
        copy = self.replicas[follower].copy
        assert copy is not None
        copy.paused_until = 0.0
        if await copy.take(data, 0):
            await copy.flush()
        copy.learn(data)

    async def fetch(self, *followers: int, rounds: int = 1) -> None:
        """Let followers fetch from the leader, one after the other."""
        for _ in range(rounds):
            for follower in followers:
                await self.take(follower, await self.ask(follower))

    def bytes_of(self, node_id: int) -> bytes:
        log = self[node_id].log
        return b"".join(
            self.replicas[node_id].machine.disk.bytes_of(segment.path()) for segment in log.segments
        )
