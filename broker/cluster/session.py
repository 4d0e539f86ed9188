"""This broker's registration in the metadata store, under a lease that it keeps alive.

The revision that created the registration is the broker epoch. Every write of the broker is guarded
by it, so nothing that an earlier run of the broker sent, or that it sends after it has been
declared dead, changes anything.

A lease only says when others may elect another leader. A broker whose lease has ended does not stop
by itself: it registers anew, and leads again what it is elected for after that. It stops if another
broker has taken its place meanwhile: a machine was cloned, say, and both have its data directory.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from math import ceil, inf
from typing import Final

import trio

from odradek.broker.cluster.image import BrokerImage
from odradek.broker.cluster.metadata import ClusterMetadata
from odradek.broker.cluster.store import (
    broker_key,
    known_broker_key,
    pack_broker,
    read_broker,
    read_fields,
)
from odradek.broker.environment.env import Compare, LeaseExpired, MetaStore, Versioned
from odradek.protocol.errors import KafkaError

LOGGER: Final = logging.getLogger(__name__)
KEPT_AT: Final = 1 / 3
"""The part of the lease's time after which it is kept alive again."""
RETRY_SECONDS: Final = 0.2
NO_LEASE: Final = -1


class NodeIdTaken(Exception):
    """Another broker with this node id is alive: one sentence for a person."""


class Session:
    """The registration of this broker."""

    def __init__(
        self,
        *,
        store: MetaStore,
        metadata: ClusterMetadata,
        directory_id: str,
        timeout_seconds: float,
        before_registering: Callable[[], Awaitable[bool]],
    ) -> None:
        """`before_registering` is awaited while no broker is registered with this node id.

        It returns False if another broker has registered with it meanwhile.
        """
        self._store = store
        self._metadata = metadata
        self._broker = BrokerImage(node_id=-1, host="", port=0, lease=NO_LEASE)
        self._directory_id = directory_id
        self._timeout_seconds = timeout_seconds
        self._before_registering = before_registering
        self._lease: int | None = None
        self._granted: dict[int, None] = {}
        """Every lease of this run."""
        self.epoch = 0
        """The broker epoch; 0 before the first registration."""
        self._kept_at = -inf

    @property
    def lease(self) -> int | None:
        """The lease of the registration; None while there is none."""
        return self._lease

    @property
    def has_lapsed(self) -> bool:
        """True if the lease may have ended: others may have been elected."""
        return trio.current_time() - self._kept_at > self._timeout_seconds

    @property
    def guard(self) -> Compare:
        """A condition that holds as long as this registration does."""
        return Compare(key=broker_key(self._broker.node_id), create_revision=self.epoch)

    def is_own(self, broker: BrokerImage) -> bool:
        """Return True if a registration is of this run, and not what an earlier one has left.

        A broker that took the earlier one for its own would lead on in an epoch in which that run
        has written: with other records at the same offsets, and nothing to tell them apart.
        """
        return broker.node_id == self._broker.node_id and broker.lease == self._broker.lease

    async def register(self, broker: BrokerImage) -> None:
        """Register this broker, and return when the image has it.

        Takes the place of an earlier run with the same data directory and address at once. Raises
        `NodeIdTaken` if another broker has the node id and stays alive for longer than its lease.
        """
        self._broker = replace(broker, lease=self._broker.lease)
        key = broker_key(broker.node_id)
        deadline = trio.current_time() + 2 * self._timeout_seconds
        while True:
            try:
                values, revision = await self._store.range(key)
                found = values.get(key)
                if found is None or self._has_ended(key, found):
                    if await self._put(key, found):
                        return
                elif trio.current_time() > deadline:
                    raise self._taken_by(key, found)
                self._metadata.note_revision(revision)
            except (KafkaError, LeaseExpired) as error:
                LOGGER.warning("this broker cannot register yet: %s", error)
            await trio.sleep(RETRY_SECONDS)

    def _has_ended(self, key: str, found: Versioned) -> bool:
        """Return True if the broker of a registration is this one, or an earlier run of it.

        An earlier run at the same address has ended: this one has its ports. One at another
        address may be alive, with a copy of the data directory: its lease decides. Raises
        `NodeIdTaken` if that one has come after this one.
        """
        if not self._is_of_this_directory(key, found):
            return False
        other = read_broker(key, found)
        if other.lease in self._granted:
            return True
        if self.epoch:
            raise self._taken_by(key, found)
        return _address(other) == _address(self._broker)

    def _is_of_this_directory(self, key: str, found: Versioned) -> bool:
        return bool(read_fields(key, found).get("directory") == self._directory_id)

    def _taken_by(self, key: str, found: Versioned) -> NodeIdTaken:
        other = read_broker(key, found)
        if self._is_of_this_directory(key, found):
            what = "a copy of this one's data directory. Stop one of the two, for good"
        else:
            what = "another data directory. Give this one another node.id"
        return NodeIdTaken(
            f"A broker with node.id {other.node_id} is alive at {other.host}:{other.port}, with "
            f"{what}."
        )

    async def _check_place(self) -> None:
        """Raise `NodeIdTaken` if another broker has registered in the place of this one."""
        here = self._metadata.image.broker(self._broker.node_id)
        if here is None or here.epoch <= self.epoch or here.lease in self._granted:
            return
        key = broker_key(here.node_id)
        found = (await self._store.range(key))[0].get(key)
        if found is not None and found.create_revision == here.epoch:
            raise self._taken_by(key, found)

    async def _put(self, key: str, found: Versioned | None) -> bool:
        """Write the registration anew. Return False if another broker was quicker."""
        if found is not None:
            same = Compare(key=key, mod_revision=found.mod_revision)
            _, revision = await self._store.txn([same], {key: None})
            await self._metadata.wait_reached(revision)
        if not await self._before_registering():
            return False
        asked_at = trio.current_time()
        lease = await self._store.grant_lease(max(1, ceil(self._timeout_seconds)))
        self._granted[lease] = None
        # The image may show the registration before its answer is here.
        self._broker = replace(self._broker, lease=lease)
        broker = self._broker
        value = pack_broker(broker, self._directory_id)
        absent = Compare(key=key, mod_revision=0)
        # A broker that is alone cannot be away for others, and writes nothing when it starts.
        known = known_broker_key(broker.node_id)
        lasting: dict[str, bytes | None] = {known: value} if broker.peer_port else {}
        is_ours, revision = await self._store.txn(
            [absent], {key: value}, lease=lease, lasting=lasting
        )
        if not is_ours:
            return False
        self._lease = lease
        self._metadata.note_revision(revision)
        self._metadata.note_lapse()
        self._kept_at = asked_at
        self.epoch = revision
        await self._metadata.wait_reached(revision)
        return True

    async def run(self) -> None:
        """Keep the lease alive until cancelled, and register anew if it has ended.

        Raises `NodeIdTaken` if another broker takes the place of this one.
        """
        interval = pause = self._timeout_seconds * KEPT_AT
        while True:
            await trio.sleep(pause)
            pause = interval
            if self._lease is None:
                await self.register(self._broker)
                continue
            asked_at = trio.current_time()
            try:
                # As long as a lease lasts: by the store's clock it may go on when ours says no.
                with trio.fail_after(self._timeout_seconds):
                    await self._check_place()
                    self._metadata.is_at(await self._store.keep_lease(self._lease))
                    # It may have lapsed while the store was asked.
                    # invariant authorization 5
                    if self.has_lapsed:
                        self._metadata.note_lapse()
                self._kept_at = asked_at
                pause = max(0.0, asked_at + interval - trio.current_time())
            except LeaseExpired:
                LOGGER.warning("the lease of this broker has ended: it registers anew")
                self._lease = None
                await self.register(self._broker)
            except (KafkaError, trio.TooSlowError) as error:
                LOGGER.warning(
                    "the lease of this broker could not be kept alive: %s",
                    error if isinstance(error, KafkaError) else "there was no answer in time",
                )
                pause = RETRY_SECONDS

    async def leave(self) -> None:
        """Announce that this broker stops, so that others lead what it leads.

        Raises KafkaError, `LeaseExpired`.
        """
        key = broker_key(self._broker.node_id)
        self._broker = replace(self._broker, is_leaving=True)
        value = pack_broker(self._broker, self._directory_id)
        _, revision = await self._store.txn([self.guard], {key: value}, lease=self._lease)
        await self._metadata.wait_reached(revision)

    async def close(self) -> None:
        """End the registration: others need not wait for the lease. Raises KafkaError."""
        if self._lease is not None:
            await self._store.revoke_lease(self._lease)
            self._lease = None


def _address(broker: BrokerImage) -> tuple[object, ...]:
    return broker.host, broker.port, broker.peer_host, broker.peer_port
