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
follower with `leave`, which waits until nothing of it is under way.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

import trio

from odradek.broker.cluster.image import BrokerImage, ClusterImage
from odradek.broker.cluster.peer_connection import (
    BrokerConnection,
    PeerUnreachable,
    peer_connection,
)
from odradek.broker.cluster.peer_network import PeerNetwork
from odradek.broker.environment.env import Clock
from odradek.broker.partitions.follower import Follower
from odradek.broker.partitions.partition import Partition
from odradek.broker.replication.follower_session import FollowerSession
from odradek.broker.values.topic_partition import TopicPartition
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
        network: PeerNetwork,
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
        self._followers: dict[TopicPartition, Follower] = {}
        self._session = FollowerSession(node_id, NO_EPOCH)
        self._changed = trio.Event()

    def add(self, follower: Follower) -> None:
        self._followers[follower.where] = follower
        self._session.add(follower)
        self._changed.set()

    def remove(self, follower: Follower) -> None:
        self._session.remove(follower)
        # A later role of the same replica may have put its own one here already. To remove that one
        # would leave the replica behind for good: nothing adds it again.
        if self._followers.get(follower.where) is follower:
            del self._followers[follower.where]

    async def run(self) -> None:
        """Fetch for as long as there are partitions, and wait for more. Never returns."""
        while True:
            await self._some_follower()
            broker = self._image().broker(self._leader)
            # The leader's registration has ended, so there is no address. The election of another
            # leader moves the followers to the fetcher of that one.
            if broker is None:
                await trio.sleep(RECONNECT_SECONDS)
                continue
            try:
                async with peer_connection(
                    self._network, broker, node_id=self._node_id, timeout_ms=TIMEOUT_MS
                ) as connection:
                    await self._fetch(connection)
            # A leader that hangs, restarts or is cut off. The followers stay: if it does not come
            # back, an election takes them away, and until then every connection begins a new
            # session.
            except PeerUnreachable as error:
                if not error.is_logged:
                    LOGGER.info("the leader of %d partitions: %s", len(self._followers), error)
                await trio.sleep(RECONNECT_SECONDS)

    async def _some_follower(self) -> None:
        while not self._followers:
            self._changed = trio.Event()
            await self._changed.wait()

    async def _fetch(self, connection: BrokerConnection) -> None:
        """Fetch over one connection until it is lost."""
        version = connection.version_of(FETCH)
        self._begin_session()
        while True:
            await self._some_follower()
            # This broker has registered anew. The leader adds it to in-sync sets only in the broker
            # epoch that it fetches with: with the old one it would stay out of all of them
            # (KIP-903).
            if self._session.broker_epoch != self._broker_epoch:
                self._begin_session()
            session = self._session
            # The offset of a fetch is the promise that everything below it is on this disk. Batches
            # that an earlier role has left in the page cache would count as replicated without it.
            await _flush(session.unflushed())
            request = session.request(
                trio.current_time(), max_wait_ms=MAX_WAIT_MS, max_bytes=MAX_BYTES
            )
            # All partitions are paused after an error, or their logs have failed. A fetch without
            # partitions would ask the leader again and again without a wait.
            if request is None:
                await self._until_ready()
                continue
            response = await connection.request(FETCH, version, request)
            # The leader does not know the session (it has restarted, or has forgotten it), or
            # refuses the fetch as a whole. Only a new session lists all partitions again. The pause
            # is for a leader that refuses each of them: it would be asked without end.
            if response.error_code:
                refusal = name_of(response.error_code)
                LOGGER.info("broker %d refuses a fetch: %s", self._leader, refusal)
                self._begin_session()
                await trio.sleep(RECONNECT_SECONDS)
                continue
            await self._take(session.answered(response))

    def _begin_session(self) -> None:
        # The next fetch lists every partition: the leader remembers none of a new session.
        self._session = FollowerSession(self._node_id, self._broker_epoch)
        for follower in self._followers.values():
            self._session.add(follower)

    @property
    def _broker_epoch(self) -> int:
        # Another process may have registered under this broker's id, from a copy of its directory.
        # Its epoch is not ours: a fetch with it would bring that one's replicas into in-sync sets.
        here = self._image().broker(self._node_id)
        return here.epoch if here is not None and self._is_own(here) else NO_EPOCH

    async def _until_ready(self) -> None:
        """Wait until a partition may be fetched again, or there is another."""
        self._changed = trio.Event()
        with trio.move_on_at(self._session.next_at):
            await self._changed.wait()

    async def _take(self, answered: list[tuple[Follower, PartitionData]]) -> None:
        """Write what has come, and wait until it is on disk."""
        written = []
        # One after the other, because a task for each would cost more than the write. The fsyncs
        # below run together: with one after the other a follower of many partitions would lag.
        for follower, data in answered:
            if await follower.take(data, self._clock.wall_ms()):
                written.append(follower)
        await _flush(written)
        # Only now, because the mark counts what is on this disk. Taken before the fsync, it would
        # stay behind until the next answer, and a quiet partition gets none for a while.
        for follower, data in answered:
            follower.learn(data)


async def _flush(followers: Sequence[Follower]) -> None:
    # The usual case of a small cluster. A nursery for it costs as much as the fetch itself.
    if len(followers) == 1:
        await followers[0].flush()
    elif followers:
        async with trio.open_nursery() as nursery:
            for follower in followers:
                nursery.start_soon(follower.flush)


class ReplicaFetchers:
    """All fetchers of this broker."""

    def __init__(
        self,
        *,
        node_id: int,
        network: PeerNetwork,
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
        self._followers: dict[Partition, tuple[ReplicaFetcher, Follower]] = {}
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
        found = self._followers.get(partition)
        if found is not None:
            is_same = found[0] is fetcher and found[1].leader_epoch == partition.leader_epoch
            # The image has changed, and not for this follower. To begin again would drop the answer
            # that is under way, at each change of the partition's in-sync set.
            if is_same:
                return
            # In a new leader epoch the logs may part elsewhere, also from the same leader. What the
            # old epoch's fetch still brings must not be written (KAFKA-13207).
            await self.leave(partition)
        follower = Follower(partition)
        self._followers[partition] = fetcher, follower
        fetcher.add(follower)

    async def leave(self, partition: Partition) -> None:
        """Copy no more; on return nothing of it is under way."""
        # Taken out before the wait: a second call meanwhile finds nothing to end.
        found = self._followers.pop(partition, None)
        if found is not None:
            fetcher, follower = found
            fetcher.remove(follower)
            await follower.end()

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
