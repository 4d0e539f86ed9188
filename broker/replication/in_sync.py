"""The in-sync sets of the partitions that this broker leads.

A leader changes the set by a compare-and-set on the partition's key in the metadata store, guarded
by its own registration and by those of the followers that join (KIP-903): a follower that has
restarted meanwhile does not get in with what its earlier run had on disk (KAFKA-15221).

While the outcome of a change is unknown, the larger of both sets counts (`Lead.proposed`). A lost
answer is no refusal (KAFKA-14144): the image shows in the end which set there is.
"""

import logging
from collections.abc import Sequence
from typing import Final

import trio

from odradek.broker.cluster.election import with_isr
from odradek.broker.cluster.metadata import ClusterMetadata
from odradek.broker.cluster.session import Session
from odradek.broker.cluster.store import broker_key, pack_partition, partition_key
from odradek.broker.env import Compare, MetaStore
from odradek.broker.guarded_write import guarded_write
from odradek.broker.partitions.lead import Lead
from odradek.broker.partitions.partition import Partition
from odradek.broker.partitions.partitions import Partitions
from odradek.protocol.errors import KafkaError

LOGGER: Final = logging.getLogger(__name__)
CHECK_SECONDS: Final = 0.5
RETRY_SECONDS: Final = 0.2


class InSync:
    """Brings followers into the in-sync sets, and takes out those that lag or are gone."""

    def __init__(
        self,
        *,
        store: MetaStore,
        metadata: ClusterMetadata,
        session: Session,
        partitions: Partitions,
        max_lag_seconds: float,
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._session = session
        self._partitions = partitions
        self._max_lag_seconds = max_lag_seconds
        self._changing: dict[Partition, None] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Look for followers that lag, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            while True:
                with trio.move_on_after(CHECK_SECONDS):
                    await self._metadata.next_step()
                for partition in self._partitions.all():
                    if partition.lead is not None and not partition.lead.is_alone:
                        self.consider(partition)

    def consider(self, partition: Partition) -> None:
        """Change the in-sync set of a partition if a follower should join or leave."""
        lead = partition.lead
        if lead is None or partition in self._changing or self._nursery is None:
            return
        if self._wanted(partition, lead) is not None:
            self._changing[partition] = None
            self._nursery.start_soon(self._change, partition, lead)

    def _wanted(self, partition: Partition, lead: Lead) -> Sequence[int] | None:
        """Return the in-sync set as it should be; None if it is so already."""
        image = self._metadata.image
        leaving = lead.leaving(partition.log_end_offset, trio.current_time(), self._max_lag_seconds)
        for node in lead.isr:
            broker = image.broker(node)
            is_going = broker is None or broker.is_leaving
            if is_going and node != lead.node_id and node not in leaving:
                leaving.append(node)
        joining = [
            node
            for node in lead.joining(partition.high_watermark)
            if self._may_join(node, lead.followers[node].broker_epoch)
        ]
        if not leaving and not joining:
            return None
        return [n for n in lead.replicas if n in (*lead.isr, *joining) and n not in leaving]

    def _may_join(self, node: int, broker_epoch: int) -> bool:
        broker = self._metadata.image.broker(node)
        return broker is not None and broker.epoch == broker_epoch and not broker.is_leaving

    async def _change(self, partition: Partition, lead: Lead) -> None:
        try:
            while partition.lead is lead:
                isr = self._wanted(partition, lead)
                if isr is None:
                    return
                try:
                    await self._write(partition, lead, isr)
                except KafkaError as error:
                    LOGGER.warning(
                        "the in-sync set of %s-%d was not changed: %s",
                        partition.topic,
                        partition.index,
                        error,
                    )
                    await trio.sleep(RETRY_SECONDS)
        finally:
            del self._changing[partition]

    async def _write(self, partition: Partition, lead: Lead, isr: Sequence[int]) -> None:
        """Write an in-sync set, and wait until the image has it or another. Raises KafkaError."""
        image = self._metadata.image.partition(partition.topic, partition.index)
        if image is None or image.epoch != lead.partition_epoch:
            await trio.sleep(RETRY_SECONDS)  # the role follows soon
            return
        key = partition_key(partition.topic, partition.index)
        compares = [Compare(key=key, mod_revision=image.epoch), self._session.guard]
        for node in isr:
            if node not in lead.isr:
                epoch = lead.followers[node].broker_epoch
                compares.append(Compare(key=broker_key(node), create_revision=epoch))
        min_isr = partition.config.min_insync_replicas
        value = pack_partition(with_isr(image, isr, min_isr))
        lead.proposed = isr
        is_written, revision = await guarded_write(self._store, compares, {key: value})
        await self._metadata.reached(revision)
        if is_written:
            LOGGER.info(
                "%s-%d: in sync are %s, before %s",
                partition.topic,
                partition.index,
                list(isr),
                list(image.isr),
            )
        else:
            lead.proposed = None
