"""This broker's registration in the metadata store, under a lease that it keeps alive.

The revision that created the registration is the broker epoch. Every write of the broker is guarded
by it, so nothing that an earlier run of the broker sent, or that it sends after it has been
declared dead, changes anything.

A lease only says when others may elect another leader. A broker whose lease has ended does not stop
by itself: it registers anew, and leads again what it is elected for after that.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from math import ceil, inf
from typing import Final

import trio

from odradek.broker.cluster.image import BrokerImage
from odradek.broker.cluster.metadata import ClusterMetadata
from odradek.broker.cluster.store import broker_key, pack_broker, read_broker, read_fields
from odradek.broker.env import Compare, LeaseExpired, MetaStore, Versioned
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

        Takes the place of an earlier run with the same data directory. Raises `NodeIdTaken` if
        another data directory has the node id and stays alive for longer than its lease.
        """
        self._broker = replace(broker, lease=self._broker.lease)
        key = broker_key(broker.node_id)
        deadline = trio.current_time() + 2 * self._timeout_seconds
        while True:
            try:
                values, revision = await self._store.range(key)
                found = values.get(key)
                if found is None or self._is_ours(found):
                    if await self._put(key, found):
                        return
                elif trio.current_time() > deadline:
                    other = read_broker(key, found)
                    raise NodeIdTaken(
                        f"A broker with node.id {self._broker.node_id} is alive at "
                        f"{other.host}:{other.port}, with another data directory. Give this "
                        "one another node.id."
                    )
                self._metadata.heard_of(revision)
            except (KafkaError, LeaseExpired) as error:
                LOGGER.warning("this broker cannot register yet: %s", error)
            await trio.sleep(RETRY_SECONDS)

    def _is_ours(self, found: Versioned) -> bool:
        key = broker_key(self._broker.node_id)
        return bool(read_fields(key, found).get("directory") == self._directory_id)

    async def _put(self, key: str, found: Versioned | None) -> bool:
        """Write the registration anew. Return False if another broker was quicker."""
        if found is not None:
            same = Compare(key=key, mod_revision=found.mod_revision)
            _, revision = await self._store.txn([same], {key: None})
            await self._metadata.reached(revision)
        if not await self._before_registering():
            return False
        asked_at = trio.current_time()
        lease = await self._store.grant_lease(max(1, ceil(self._timeout_seconds)))
        # The image may show the registration before its answer is here.
        self._broker = replace(self._broker, lease=lease)
        value = pack_broker(self._broker, self._directory_id)
        absent = Compare(key=key, mod_revision=0)
        is_ours, revision = await self._store.txn([absent], {key: value}, lease=lease)
        if not is_ours:
            return False
        self._lease = lease
        self._kept_at = asked_at
        self.epoch = revision
        await self._metadata.reached(revision)
        return True

    async def run(self) -> None:
        """Keep the lease alive until cancelled, and register anew if it has ended."""
        while True:
            await trio.sleep(self._timeout_seconds * KEPT_AT)
            if self._lease is None:
                await self.register(self._broker)
                continue
            asked_at = trio.current_time()
            try:
                with trio.fail_after(self._timeout_seconds):
                    self._metadata.is_at(await self._store.keep_lease(self._lease))
                self._kept_at = asked_at
            except LeaseExpired:
                LOGGER.warning("the lease of this broker has ended: it registers anew")
                self._lease = None
                await self.register(self._broker)
            except (KafkaError, trio.TooSlowError) as error:
                LOGGER.warning("the lease of this broker could not be kept alive: %s", error)

    async def leave(self) -> None:
        """Announce that this broker stops, so that others lead what it leads.

        Raises KafkaError, `LeaseExpired`.
        """
        key = broker_key(self._broker.node_id)
        self._broker = replace(self._broker, is_leaving=True)
        value = pack_broker(self._broker, self._directory_id)
        _, revision = await self._store.txn([self.guard], {key: value}, lease=self._lease)
        await self._metadata.reached(revision)

    async def close(self) -> None:
        """End the registration: others need not wait for the lease. Raises KafkaError."""
        if self._lease is not None:
            await self._store.revoke_lease(self._lease)
            self._lease = None
