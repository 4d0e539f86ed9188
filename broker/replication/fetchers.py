"""The replicas of this broker that follow other brokers: one fetcher for each leader.

A fetcher asks its leader for the batches of all partitions that follow it, writes them as they are,
and asks again when they are on disk. So the offset from which it fetches says what is on its disk,
and with it the leader computes the high watermark. A fetch lists only the partitions that were in
the last answer, or are new (`replica_sessions.py`).

Each fetch names the leader epoch in which it is meant, and the epoch of the last record that the
follower has. If the leader's log has parted from the follower's, the answer says where, the
follower cuts its log there, and fetches again (KIP-595, in place of a request of its own before the
first fetch, KIP-101, KIP-279, KIP-320).

An answer is dropped if the role of the replica has changed meanwhile (KAFKA-13207): `Roles` ends a
copy with `leave`, which waits until nothing of it is under way.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

import trio

from odradek.broker.cluster.image import BrokerImage, ClusterImage
from odradek.broker.env import Clock, Network
from odradek.broker.partitions.partition import Partition
from odradek.broker.peer_connection import BrokerConnection, PeerUnreachable, peer_connection
from odradek.broker.replication.copy import Copy
from odradek.broker.replication.follower_session import FollowerSession
from odradek.broker.topic_partition import TopicPartition
from odradek.protocol.apis.fetch import FETCH, PartitionData
from odradek.protocol.errors import name_of

LOGGER: Final = logging.getLogger(__name__)
MAX_WAIT_MS: Final = 500
TIMEOUT_MS: Final = 3_000
"""A leader answers within MAX_WAIT_MS; one that does not is gone, or cut off."""
MAX_BYTES: Final = 10 * 1024 * 1024
RECONNECT_SECONDS: Final = 0.1
NO_EPOCH: Final = -1


class ReplicaFetcher:
    """The fetches from one leader."""

    def __init__(
        self,
        leader: int,
        *,
        node_id: int,
        network: Network,
        clock: Clock,
        image: Callable[[], ClusterImage],
        is_own: Callable[[BrokerImage], bool],
    ) -> None:
        self._leader = leader
        self._node_id = node_id
        self._network = network
        self._clock = clock
        self._image = image
        self._is_own = is_own
        self._copies: dict[TopicPartition, Copy] = {}
        self._session = FollowerSession(node_id, NO_EPOCH)
        self._changed = trio.Event()

    def add(self, copy: Copy) -> None:
        self._copies[copy.where] = copy
        self._session.add(copy)
        self._changed.set()

    def remove(self, copy: Copy) -> None:
        self._session.remove(copy)
        if self._copies.get(copy.where) is copy:
            del self._copies[copy.where]

    async def run(self) -> None:
        """Fetch for as long as there are partitions, and wait for more. Never returns."""
        while True:
            await self._some_copy()
            broker = self._image().broker(self._leader)
            if broker is None:  # another leader will be elected
                await trio.sleep(RECONNECT_SECONDS)
                continue
            try:
                async with peer_connection(
                    self._network, broker, node_id=self._node_id, timeout_ms=TIMEOUT_MS
                ) as connection:
                    await self._fetch(connection)
            except PeerUnreachable as error:
                LOGGER.info("the leader of %d partitions: %s", len(self._copies), error)
                await trio.sleep(RECONNECT_SECONDS)

    async def _some_copy(self) -> None:
        while not self._copies:
            self._changed = trio.Event()
            await self._changed.wait()

    async def _fetch(self, connection: BrokerConnection) -> None:
        """Fetch over one connection until it is lost."""
        version = connection.version_of(FETCH)
        self._begin_session()
        while True:
            await self._some_copy()
            if self._session.broker_epoch != self._broker_epoch:
                self._begin_session()
            session = self._session
            await _flush(session.unflushed())
            request = session.request(
                trio.current_time(), max_wait_ms=MAX_WAIT_MS, max_bytes=MAX_BYTES
            )
            if request is None:
                await self._until_ready()
                continue
            response = await connection.request(FETCH, version, request)
            if response.error_code:
                refusal = name_of(response.error_code)
                LOGGER.info("broker %d refuses a fetch: %s", self._leader, refusal)
                self._begin_session()
                await trio.sleep(RECONNECT_SECONDS)
                continue
            await self._take(session.answered(response))

    def _begin_session(self) -> None:
        self._session = FollowerSession(self._node_id, self._broker_epoch)
        for copy in self._copies.values():
            self._session.add(copy)

    @property
    def _broker_epoch(self) -> int:
        here = self._image().broker(self._node_id)
        return here.epoch if here is not None and self._is_own(here) else NO_EPOCH

    async def _until_ready(self) -> None:
        """Wait until a partition may be fetched again, or there is another."""
        self._changed = trio.Event()
        with trio.move_on_at(self._session.next_at):
            await self._changed.wait()

    async def _take(self, answered: list[tuple[Copy, PartitionData]]) -> None:
        """Write what has come, and wait until it is on disk."""
        written = []
        for copy, data in answered:
            if await copy.take(data, self._clock.wall_ms()):
                written.append(copy)
        await _flush(written)
        for copy, data in answered:
            copy.learn(data)


async def _flush(copies: Sequence[Copy]) -> None:
    if len(copies) == 1:
        await copies[0].flush()
    elif copies:
        async with trio.open_nursery() as nursery:
            for copy in copies:
                nursery.start_soon(copy.flush)


class ReplicaFetchers:
    """All fetchers of this broker."""

    def __init__(
        self,
        *,
        node_id: int,
        network: Network,
        clock: Clock,
        image: Callable[[], ClusterImage],
        is_own: Callable[[BrokerImage], bool],
    ) -> None:
        self._node_id = node_id
        self._network = network
        self._clock = clock
        self._image = image
        self._is_own = is_own
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._copies: dict[Partition, tuple[ReplicaFetcher, Copy]] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Fetch until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    async def follow(self, partition: Partition, leader: int) -> None:
        """Copy from a leader, in the partition's leader epoch, until the next call."""
        fetcher = self._fetcher(leader)
        found = self._copies.get(partition)
        if found is not None:
            is_same = found[0] is fetcher and found[1].leader_epoch == partition.leader_epoch
            if is_same:
                return
            await self.leave(partition)
        copy = Copy(partition)
        self._copies[partition] = fetcher, copy
        fetcher.add(copy)

    async def leave(self, partition: Partition) -> None:
        """Copy no more; on return nothing of it is under way."""
        found = self._copies.pop(partition, None)
        if found is not None:
            fetcher, copy = found
            fetcher.remove(copy)
            await copy.end()

    def _fetcher(self, leader: int) -> ReplicaFetcher:
        found = self._fetchers.get(leader)
        if found is None:
            assert self._nursery is not None, "`run` has not been started"
            found = ReplicaFetcher(
                leader,
                node_id=self._node_id,
                network=self._network,
                clock=self._clock,
                image=self._image,
                is_own=self._is_own,
            )
            self._fetchers[leader] = found
            self._nursery.start_soon(found.run)
        return found
