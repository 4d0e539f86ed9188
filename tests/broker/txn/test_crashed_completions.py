"""Real logs below a coordinator, and a crash before every operation of the disk.

A Complete* record counts when it is appended, and is flushed with the next record of its id. After
a crash the coordinator may find the decision without it, and sends the markers again. They must not
end what the producer has written since.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.membership.local_coordinators import StateTopic
from odradek.broker.partitions.leader import Leader
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.marking import NewMarker
from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.coordinator import TransactionCoordinator
from odradek.broker.txn.producer_ids import PRODUCER_IDS_KEY, ProducerIds
from odradek.broker.txn.transaction import ProducerIdAndEpoch, State
from odradek.protocol.apis.txn import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from odradek.protocol.batch import iter_batches
from odradek.protocol.errors import KafkaError
from odradek.protocol.record import decode_batch
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC
from tests.broker.storage.samples import DIRECTORY, batch
from tests.broker.storage.stories import KEEPING, at_every, crash
from tests.broker.txn.world import CLIENT, ID, P0, P1, REFUNDS_ID, FakeMarkers, Marker
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FakeDisk, until_power_off
from tests.fakes.meta_store import FakeMetaStore

TRANSACTIONS: Final = 3
SETTLE_SECONDS: Final = 60
STATE_ID: Final = UUID(int=3)


class RealMarkers(FakeMarkers):
    """Write markers into the logs of this broker."""

    def __init__(self, partitions: Partitions) -> None:
        super().__init__()
        self.partitions = partitions

    async def send(
        self, broker_id: int, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        response = self.response_to(request)
        if self.gate is not None:
            await self.gate.wait()
        asked, self.asked = self.asked, []
        for marker in asked:
            leader = self.partitions.leader(marker.partition.topic, marker.partition.partition)
            leader.append_markers([_new(marker)])
            await leader.wait_committed()
        return response


def _new(marker: Marker) -> NewMarker:
    return NewMarker(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.committed,
        marker.transaction_version,
    )


class Lives:
    """A machine with one broker: what it has acknowledged, over all its lives."""

    def __init__(
        self, config: LogConfig | None = None, markers: type[RealMarkers] = RealMarkers
    ) -> None:
        self.config = config or LogConfig()
        self._new_markers = markers
        self.disk = FakeDisk()
        self.clock = FakeClock()
        self.meta = FakeMetaStore()
        self.meta.put({PRODUCER_IDS_KEY: b"1000"})
        self.leader_epoch = -1
        self.acknowledged: set[str] = set()
        self.transaction_count = 0

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        self.leader_epoch += 1
        self.partitions = Partitions(
            disk=self.disk, directory=DIRECTORY, clock=self.clock, flush=self.config.flush
        )
        for topic, topic_id, index in (
            (TRANSACTION_STATE_TOPIC, STATE_ID, 0),
            (P0.topic, REFUNDS_ID, P0.partition),
            (P1.topic, REFUNDS_ID, P1.partition),
        ):
            await self.partitions.open(
                topic, topic_id, index, self.config, leader_epoch=self.leader_epoch
            )
        await self.partitions.run_notes.on_all_open()
        self.markers = self._new_markers(self.partitions)
        self.coordinator = TransactionCoordinator(
            state_partitions=StateTopic(self.partitions, TRANSACTION_STATE_TOPIC),
            producer_ids=ProducerIds(self.meta),
            clock=self.clock,
            config=TransactionConfig(transaction_state_log_num_partitions=1),
            is_by_tag=lambda: True,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(self.partitions.run)
            await nursery.start(self.coordinator.run, self.markers)
            await self.coordinator.load(0)
            yield
            nursery.cancel_scope.cancel()

    def leader(self, index: int) -> Leader:
        return self.partitions.leader(P0.topic, index)

    async def init(self) -> ProducerIdAndEpoch:
        answer = await self.coordinator.init_producer_id(
            transactional_id=ID, timeout_ms=60_000, expected=None, client=CLIENT
        )
        return answer.producer

    async def add(self, who: ProducerIdAndEpoch, version: int = 2) -> None:
        await self.coordinator.add_partitions(
            transactional_id=ID, producer=who, partitions=(P0, P1), transaction_version=version
        )

    def batch_of(self, who: ProducerIdAndEpoch, value: str, sequence: int = 0) -> memoryview:
        return batch(
            value,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )

    async def transact(self, version: int) -> None:
        """Commit transactions of two partitions, each as soon as the one before is answered."""
        who = await self.init()
        sequence = 0
        for _ in range(TRANSACTIONS):
            number, self.transaction_count = self.transaction_count, self.transaction_count + 1
            await self.add(who, version)
            for index in range(2):
                self.leader(index).append_from_client(
                    self.batch_of(who, f"{number}", sequence), transaction_version=version
                )
            sequence += 1
            for index in range(2):
                await self.leader(index).wait_committed()
            following = await self.coordinator.end_transaction(
                transactional_id=ID, producer=who, committed=True, transaction_version=version
            )
            self.acknowledged.add(f"{number}")
            if version == 2:
                who, sequence = following, 0

    async def visible(self, index: int) -> set[str]:
        leader, found = self.leader(index), set()
        assert not leader.log.producers.open_transactions()
        result = await leader.read(0, 1 << 20, read_committed=True)
        assert not result.aborted or all(each.first_offset >= 0 for each in result.aborted)
        aborted = {each.first_offset for each in result.aborted}
        for header, view in iter_batches(result.records):
            if not header.is_control and header.base_offset not in aborted:
                found |= {(record.value or b"").decode() for record in decode_batch(view)}
        return found


Story = Callable[[Lives], Awaitable[None]]


async def until(operation: int | None, version: int) -> Lives:
    lives = Lives()
    lives.disk.mkdir(DIRECTORY)
    lives.disk.make_durable()
    if operation is not None:
        lives.disk.power_off_at(operation)
    with until_power_off():
        async with lives.life():
            try:
                await lives.transact(version)
            except KafkaError:
                if not lives.disk.is_off:
                    raise
            await trio.sleep(SETTLE_SECONDS)
    return lives


@at_every
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("keeping", KEEPING)
async def test_markers_that_are_sent_again_after_a_crash_end_no_later_transaction(
    keeping: str, version: int, every: int
) -> None:
    whole = await until(None, version)
    assert len(whole.acknowledged) == TRANSACTIONS
    for operation in range(KEEPING.index(keeping) % every, whole.disk.operations, every):
        lives = await until(operation, version)
        crash(lives.disk, keeping, operation)
        async with lives.life():
            await trio.sleep(SETTLE_SECONDS)  # what was decided is ended
            await lives.init()  # what was not is aborted
            await trio.sleep(SETTLE_SECONDS)
            found = await lives.visible(0)
            assert found == await lives.visible(1), (operation, "a transaction is torn")
            assert lives.acknowledged <= found, operation


async def test_a_completion_that_nothing_follows_is_on_disk_soon() -> None:
    """Or each power failure would have the markers of all transactions sent again."""
    lives = Lives()
    lives.disk.mkdir(DIRECTORY)
    lives.disk.make_durable()
    async with lives.life():
        who = await lives.init()
        await lives.coordinator.add_partitions(
            transactional_id=ID, producer=who, partitions=(P0,), transaction_version=2
        )
        lives.markers.hold()
        await lives.coordinator.end_transaction(
            transactional_id=ID, producer=who, committed=True, transaction_version=2
        )
        await trio.sleep(SETTLE_SECONDS)  # everything is on disk
        lives.markers.release()
        await trio.sleep(SETTLE_SECONDS)
    lives.disk.crash()
    async with lives.life():
        states = [each.transaction.state for each in lives.coordinator.transactions()]
        assert states == [State.COMPLETE_COMMIT]


async def test_a_completion_shares_the_flush_of_the_next_record() -> None:
    lives = Lives()
    lives.disk.mkdir(DIRECTORY)
    async with lives.life():
        who = await lives.init()
        state_log = lives.partitions.leader(TRANSACTION_STATE_TOPIC, 0).log
        await trio.sleep(SETTLE_SECONDS)
        for partition in (P0, P1):
            await lives.coordinator.add_partitions(
                transactional_id=ID, producer=who, partitions=(partition,), transaction_version=2
            )
            who = await lives.coordinator.end_transaction(
                transactional_id=ID, producer=who, committed=True, transaction_version=2
            )
            await trio.testing.wait_all_tasks_blocked()
            (view,) = lives.coordinator.transactions()
            assert view.transaction.state is State.COMPLETE_COMMIT
            assert state_log.flushed_offset == state_log.log_end_offset - 1
        syncs = f"fsync {state_log.active.path()}"
        assert lives.disk.journal.count(syncs) <= 6, lives.disk.journal


async def test_a_completion_that_the_log_refuses_does_not_count() -> None:
    lives = Lives()
    lives.disk.mkdir(DIRECTORY)
    async with lives.life():
        who = await lives.init()
        await lives.coordinator.add_partitions(
            transactional_id=ID, producer=who, partitions=(P0,), transaction_version=2
        )
        lead = lives.partitions.leader(TRANSACTION_STATE_TOPIC, 0)
        await lives.coordinator.end_transaction(
            transactional_id=ID, producer=who, committed=True, transaction_version=2
        )
        lead.is_over = True
        await trio.testing.wait_all_tasks_blocked()
        (view,) = lives.coordinator.transactions()
        assert view.transaction.state is State.PREPARE_COMMIT
