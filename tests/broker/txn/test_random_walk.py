"""Random requests, time-outs, failing disks and crashes, all at once; what must hold is looked at
with every change that becomes visible, and once more when everything has healed.

A failure names its seed: `pytest tests/broker/txn/test_random_walk.py -k 17` plays it again.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

import pytest
import trio
import trio.testing

from odradek.broker.coordination.state_partition import StatePartition
from odradek.broker.txn.config import TransactionConfig
from odradek.broker.txn.store import encode
from odradek.broker.txn.tenure import Entry, TransactionTenure
from odradek.broker.txn.transaction import (
    NO_PRODUCER_EPOCH,
    ProducerIdAndEpoch,
    State,
    TransactionMetadata,
)
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.txn.test_state_table import PREVIOUS_STATES, STATES
from tests.broker.txn.world import CLIENT, Marker, ModelLeaders, World, producer

pytestmark = pytest.mark.slow

STEPS = 150
CONFIG = TransactionConfig(
    transaction_state_log_num_partitions=1,
    transaction_two_phase_commit_enable=True,
    transaction_abort_on_disconnect=True,
)
IDS = ("a", "b", "c")
PARTITIONS = tuple(TopicIdPartition.of("t", index, UUID(int=5)) for index in range(4))
LEGAL = {
    (STATES[source], STATES[target])
    for target, *sources in (line.split() for line in PREVIOUS_STATES.strip().splitlines())
    for source in sources
}
FAILURES = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
EXPECTED_REFUSALS = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


@dataclass(frozen=True, slots=True)
class Client:
    """An identity that a client was given, and the generation that the client speaks."""

    transactional_id: str
    who: ProducerIdAndEpoch
    version: int


class Walk(World):
    def __init__(self, nursery: trio.Nursery, seed: int) -> None:
        super().__init__(nursery, CONFIG)
        self.rng = random.Random(seed)
        self.leaders = ModelLeaders()
        self.markers.answer = self.answer
        self.markers.known_coordinator_epoch = lambda partition, producer_id: (
            self.leaders.coordinator_epochs.get((partition, producer_id), -1)
        )
        self.outbid = 0
        self.markers.delay_s = lambda broker_id: self.rng.choice((0, 0, 0.001, 0.3))
        self.markers.leaders = {p: index % 2 for index, p in enumerate(PARTITIONS)}
        self.is_calm = False
        self.clients: list[Client] = []
        self.visible: dict[str, TransactionMetadata] = {}
        self.decided: dict[tuple[int, int], bool] = {}
        self.acknowledged: dict[tuple[int, int], bool] = {}
        self.written: set[tuple[TopicIdPartition, int, int]] = set()
        self.changes = 0

    async def start_unloaded(self) -> None:
        await super().start_unloaded()
        tenures = self.coordinator._ledger._tenures
        begin = tenures._begin

        def watched(partition: StatePartition, name: str) -> TransactionTenure:
            tenure = begin(partition, name)
            apply = tenure.apply

            def watched_apply(entry: Entry, after: TransactionMetadata) -> None:
                if not tenure.is_loaded:
                    self.check_identity(entry.transactional_id, after)
                elif after.state is not State.DEAD:
                    self.check_change(entry, after)
                apply(entry, after)

            tenure.apply = watched_apply  # type: ignore[method-assign]
            return tenure

        tenures._begin = watched

    # What must hold

    def check_change(self, entry: Entry, after: TransactionMetadata) -> None:
        before = entry.transaction
        is_first = before.producer_epoch == NO_PRODUCER_EPOCH
        is_fence = before.state is State.ONGOING and after.state is State.PREPARE_ABORT
        assert is_first or is_fence or (before.state, after.state) in LEGAL
        record = encode(entry.transactional_id, after)
        is_end = before.state.is_prepared
        records = self.log.records if is_end else self.log.durable_records
        newest = [r.value for r in records if r.key == record.key][-1]
        assert newest == record.value, "visible before it is appended or durable"
        self.check_identity(entry.transactional_id, after)
        if (
            after.state.is_prepared
            and before.state is State.ONGOING
            and after.transaction_version == 2
        ):
            self.decide(before.producer_id, before.producer_epoch, after.state)
        self.changes += 1

    def check_identity(self, transactional_id: str, after: TransactionMetadata) -> None:
        before = self.visible.get(transactional_id)
        assert 0 <= after.producer_epoch <= 32_767
        if before is not None:
            if after.producer_id == before.producer_id:
                assert after.producer_epoch >= before.producer_epoch, "an epoch went back"
            else:
                assert after.producer_id > before.producer_id, "a producer id came back"
        self.visible[transactional_id] = after

    def decide(self, producer_id: int, producer_epoch: int, state: State) -> None:
        committed = state is State.PREPARE_COMMIT
        key = (producer_id, producer_epoch)
        assert self.decided.setdefault(key, committed) is committed, "a decision was reversed"

    def answer(self, marker: Marker) -> ErrorCode:
        if not self.is_calm and self.rng.random() < 0.2:
            return self.rng.choice((*FAILURES, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        known = self.known_epoch(marker)
        answer = self.leaders.answer(marker)
        if marker.coordinator_epoch > self.log.leader_epoch:
            self.outbid += 1
            assert marker.coordinator_epoch <= known, "more than an administrator has used"
        is_current = marker.coordinator_epoch == self.log.leader_epoch
        is_fenced = (
            answer is ErrorCode.TRANSACTION_COORDINATOR_FENCED and known > self.log.leader_epoch
        )
        assert answer is ErrorCode.NONE or is_fenced or not is_current, (
            f"{marker} got {answer.name}"
        )
        return answer

    def known_epoch(self, marker: Marker) -> int:
        return self.leaders.coordinator_epochs.get((marker.partition, marker.producer_id), -1)

    def check_open(self, client: Client) -> None:
        """Nobody of the same id has another transaction open anywhere."""
        mine = {
            (known.who.producer_id)
            for known in self.clients
            if known.transactional_id == client.transactional_id
        }
        open_now = {
            (producer_id, epoch)
            for (_, producer_id), epoch in self.leaders.open.items()
            if producer_id in mine
        }
        assert len(open_now) <= 1, f"two open transactions: {open_now}"

    # What happens

    async def request(self, attempt: Callable[[], Awaitable[None]]) -> None:
        try:
            if self.rng.random() < 0.1:
                with trio.move_on_after(self.rng.random() * 0.1):  # the client hangs up
                    await attempt()
            else:
                await attempt()
        except KafkaError as error:
            if error.code not in EXPECTED_REFUSALS:
                raise

    def a_client(self) -> Client:
        newest = {client.transactional_id: client for client in self.clients}
        if self.rng.random() < 0.8:
            return self.rng.choice(list(newest.values()))
        return self.rng.choice(self.clients)

    async def begin(self) -> None:
        transactional_id = self.rng.choice(IDS)
        known = [c.who for c in self.clients if c.transactional_id == transactional_id]
        expected = self.rng.choice(known[-3:]) if known and self.rng.random() < 0.4 else None
        answer = await self.coordinator.init_producer_id(
            transactional_id=transactional_id,
            timeout_ms=5_000,
            expected=expected,
            client=CLIENT,
            two_phase=self.rng.random() < 0.1,
            keep_prepared=self.rng.random() < 0.3,
        )
        who = answer.producer
        assert answer.ongoing is None or answer.ongoing != who
        version = self.rng.choice((0, 2, 2))
        for client in self.clients:  # an identity speaks one generation
            if (client.transactional_id, client.who) == (transactional_id, who):
                version = client.version
        self.clients.append(Client(transactional_id, who, version))

    async def produce(self) -> None:
        client = self.a_client()
        partition = self.rng.choice(PARTITIONS)
        await self.add(
            client.who,
            partition,
            version=client.version,
            transactional_id=client.transactional_id,
        )
        # No checkpoint since it was let in: what the leader does now is still covered.
        self.leaders.write(partition, client.who)
        self.check_open(client)
        if client.version == 2:
            self.written.add((partition, client.who.producer_id, client.who.producer_epoch))

    async def end(self) -> None:
        client = self.a_client()
        committed = self.rng.random() < 0.6
        finish = self.commit if committed else self.abort
        who, version = client.who, client.version
        following = await finish(who, version, client.transactional_id)
        if version == 2:
            key = (who.producer_id, who.producer_epoch)
            assert self.acknowledged.setdefault(key, committed) is committed
            self.clients.append(Client(client.transactional_id, following, version))

    async def vanish(self) -> None:
        """The last connection of some producer is closed, be it the current one or not."""
        client = self.a_client()
        self.coordinator._producer_has_gone(client.transactional_id, client.who, CLIENT)
        await trio.lowlevel.checkpoint()

    async def disturb(self) -> None:
        match self.rng.randrange(9):
            case 0:
                self.log.append_errors.append(self.rng.choice(FAILURES))
            case 1:
                self.log.flush_errors.append(self.rng.choice(FAILURES))
            case 2:
                self.log.hold()
            case 3:
                self.markers.lost_requests += self.rng.randrange(3)
            case 4:
                self.markers.lost_answers += self.rng.randrange(3)
            case 5:
                await self.crash(keep=self.rng.randrange(3))
            case 6:
                self.partitions.current[0] = self.log.hand_over()
                await self.coordinator.load(0)
            case 7:
                self.coordinator.unload(0)
                await trio.sleep(self.rng.random())
                self.partitions.current[0] = self.log.hand_over()
                await self.coordinator.load(0)
            case 8:  # an administrator's marker, with a coordinator epoch that he made up
                producer_id = self.a_client().who.producer_id
                key = (self.rng.choice(PARTITIONS), producer_id)
                self.leaders.coordinator_epochs[key] = self.log.leader_epoch + 3

    async def walk(self) -> None:
        await self.start()
        await self.begin()
        for _ in range(STEPS):
            dice = self.rng.random()
            if dice < 0.1:
                await self.disturb()
            elif dice < 0.2:
                self.log.release()
            else:
                doing = self.rng.choice(
                    (self.begin, self.produce, self.produce, self.end, self.vanish)
                )
                self.nursery.start_soon(self.request, doing)
            await trio.sleep(self.rng.choice((0, 0, 0.001, 0.01, 0.2, 1.5)))

    async def heal(self) -> None:
        self.is_calm = True
        self.log.release()
        self.log.append_errors.clear()
        self.log.flush_errors.clear()
        self.markers.lost_answers = self.markers.lost_requests = 0
        await trio.sleep(60)
        for transactional_id in IDS:  # what is prepared waits for as long as nobody comes
            await self.init(transactional_id=transactional_id)

    def check_the_end(self) -> None:
        assert not self.leaders.open, "a transaction is open that nobody will end"
        for view in self.coordinator.transactions():
            assert view.transaction.state in (
                State.EMPTY,
                State.COMPLETE_COMMIT,
                State.COMPLETE_ABORT,
            )
        ended = {(p, i, epoch): committed for p, i, epoch, committed in self.leaders.ended}
        for partition, producer_id, epoch in self.written:
            committed = ended[partition, producer_id, epoch]
            assert self.decided.get((producer_id, epoch), committed) is committed, "torn"
            answered = self.acknowledged.get((producer_id, epoch))
            assert answered in (None, committed), "the client was told otherwise"


def make_replayable(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Trio takes tasks that are ready in random order; make it the same order each time."""
    internals = trio._core._run
    monkeypatch.setattr(internals, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
    monkeypatch.setattr(internals, "_r", random.Random(seed))


@pytest.mark.parametrize("first_epoch", [0, 32_760])
@pytest.mark.parametrize("seed", range(40))
async def test_nothing_that_must_hold_is_broken(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, seed: int, first_epoch: int
) -> None:
    make_replayable(monkeypatch, seed)
    walk = Walk(nursery, seed)
    if first_epoch:
        batches = [
            encode(
                transactional_id,
                TransactionMetadata(
                    producer_id=index, producer_epoch=first_epoch, timeout_ms=5_000
                ),
            )
            for index, transactional_id in enumerate(IDS)
        ]
        walk.log.append_records(batches)
        await walk.log.wait_committed(len(batches))
        walk.clients = [
            Client(transactional_id, producer(index, first_epoch), 2)
            for index, transactional_id in enumerate(IDS)
        ]
    await walk.walk()
    await walk.heal()
    walk.check_the_end()
    assert walk.changes > 20
    walk.stop()
