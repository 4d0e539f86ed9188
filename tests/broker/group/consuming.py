"""Members of the new protocol (KIP-848), and the topics that they read."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from odradek.broker.cluster.image import ClusterImage, PartitionImage, TopicImage
from odradek.broker.group.consumer.consumer_group import ConsumerGroup
from odradek.broker.group.consumer.heartbeat import Beat, Beaten
from odradek.broker.group.member_requests import Claim
from odradek.broker.values.topic_partition import TopicPartition
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.group.world import GROUP, World


def topics(**partition_counts: int) -> ClusterImage:
    """Return an image with these topics. The id of a topic follows from its name."""
    return ClusterImage(cluster_id="").with_topics(
        TopicImage(
            name=name,
            topic_id=id_of(name),
            configs={},
            partitions=tuple(
                PartitionImage(leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
                for _ in range(count)
            ),
        )
        for name, count in partition_counts.items()
    )


def id_of(name: str) -> UUID:
    return UUID(bytes=name.encode()[:16].rjust(16, b"\0"))


@dataclass(kw_only=True)
class Consumer:
    """A client's side of the protocol: it owns what the answers say, and reports what it owns."""

    world: World
    member_id: str
    group_id: str = GROUP
    names: tuple[str, ...] | None = ("t",)
    regex: str | None = None
    instance: str | None = None
    assignor: str | None = None
    rebalance_ms: int = 30_000
    epoch: int = 0
    owned: dict[UUID, frozenset[int]] = field(default_factory=dict)
    keeps: bool = False
    """True for a client that does not get done with what it has to revoke."""

    async def beat(self, **changes: object) -> Beaten:
        """Send a heartbeat with everything, and take what the answer gives."""
        asked = Beat(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            client_id="client",
            client_host="/127.0.0.1",
            instance_id=self.instance,
            rebalance_timeout_ms=self.rebalance_ms,
            topics=None if self.names is None else frozenset(self.names),
            regex=self.regex,
            assignor=self.assignor,
            owned=dict(self.owned),
        )
        beaten = await self.world.groups.consumers.heartbeat(
            replace(asked, **changes),  # type: ignore[arg-type]
            must_have_id=True,
        )
        self.take(beaten)
        return beaten

    def take(self, beaten: Beaten) -> None:
        if beaten.shows_assignment:
            assigned = {key: frozenset(each) for key, each in beaten.member.assigned.items()}
            if not self.keeps or all(
                owned <= assigned.get(key, frozenset()) for key, owned in self.owned.items()
            ):
                self.owned = assigned
        self.epoch = beaten.member.epoch

    async def leave(self, epoch: int = -1) -> None:
        await self.beat(member_epoch=epoch)
        self.owned, self.epoch = {}, 0

    @property
    def claim(self) -> Claim:
        return Claim(
            member_id=self.member_id, group_instance_id=self.instance, generation_id=self.epoch
        )

    def has(self, name: str = "t") -> list[int]:
        return sorted(self.owned.get(id_of(name), ()))


async def settle(*members: Consumer, rounds: int = 6) -> None:
    """Let all of them send heartbeats until nothing moves any more."""
    for _ in range(rounds):
        for member in members:
            await member.beat()


def newest(world: World, group_id: str = GROUP) -> ConsumerGroup:
    """Return the group as the coordinator has it."""
    tenure = next(iter(world.groups._tenures))
    live = tenure.consumer(group_id)
    assert live is not None
    return live.group


async def refusal_of(member: Consumer, **changes: object) -> ErrorCode:
    try:
        await member.beat(**changes)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def places(name: str, *indexes: int) -> Mapping[TopicPartition, int]:
    return {TopicPartition(name, index): 7 for index in indexes}
