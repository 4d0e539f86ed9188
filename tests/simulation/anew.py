"""Topics that are deleted and made anew under their names, and clients that do not notice it.

Each topic lives for a while, and comes again with another number of partitions. Meanwhile producers
of all versions and transaction groups, as a sink has them, have transactions that write to several
of them, and store offsets of a group for them; the group stores offsets without a transaction, too.
Whatever was made anew is a new thing:

- Every transaction comes to its end (`liveness.py`), and so its id is free.
- A topic has no marker of a transaction that did nothing there since the topic was made.
- What was acknowledged after a topic was made, and before the end, is there if its transaction was
  committed, all of it or nothing of it; what was aborted is not.
- A group has no offset for a topic that was stored before the topic was made.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any, Final
from uuid import UUID

import trio

from odradek.broker.values.topic_partition import TopicPartition as Where
from odradek.client import Aborted, Admin, OdradekError, TopicPartition
from odradek.protocol.api import Api
from odradek.protocol.apis.group_offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.apis.txn import (
    ADD_OFFSETS_TO_TXN,
    TXN_OFFSET_COMMIT,
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.checker.history import Found, Outcome, Partition
from tests.simulation.logs import Logs
from tests.simulation.raw import ANSWER_SECONDS, VERSIONS, GivenUp, RawProducer
from tests.simulation.world import World

TOPICS: Final = ("anew0", "anew1")
PARTITIONS: Final = 3
"""The most partitions of a topic. Clients try all of them, whether they are there or not."""
GROUP: Final = "anew"
WRITERS: Final = 3
LIFE_SECONDS: Final = (0.2, 1.5)
ABSENT_SECONDS: Final = (0.0, 0.3)
PAUSE_SECONDS: Final = 0.15
PATIENCE_SECONDS: Final = 1.0
"""The time for a request to a partition that may not be there."""
ABORT_PROBABILITY: Final = 0.2
OFFSETS_PROBABILITY: Final = 0.3
PATIENT: Final[dict[str, Any]] = {"max_block_ms": 1500, "delivery_timeout_ms": 3000}
"""Limits of our clients: the partition may not come again."""
BY_HAND: Final = -1
"""The generation of offsets that no member stores."""

Client = Callable[[str, Random], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """One topic of a name. It was made at some time between `begun` and `made`."""

    name: str
    begun: float
    made: float


@dataclass(slots=True, kw_only=True)
class Write:
    """One record of a transaction."""

    transaction: int
    where: Partition
    began: float
    """The time at which it was sent."""
    is_acknowledged: bool = False


@dataclass(slots=True)
class Anew:
    """The topics, their clients, and what these have done. `options`: of our clients."""

    world: World
    stop: trio.Event
    options: dict[str, Any]
    transaction_timeout_ms: int
    violations: list[str] = field(default_factory=list)
    makings: dict[UUID, Making] = field(default_factory=dict)
    writes: dict[bytes, Write] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    """By transaction."""
    attempts: dict[int, dict[str, float]] = field(default_factory=dict)
    """For a producer id and a topic: the time after which it does nothing there; if a request is
    under way, or was not answered, infinity. Producers that are not here may have any markers."""
    stored: dict[str, float] = field(default_factory=dict)
    """The same for an offset, by its metadata."""
    _logs: Logs = field(default_factory=Logs)

    async def live(self, process: str, rng: Random) -> None:
        """Make topics anew, and use them, until `stop` is set."""
        clients: list[tuple[str, Client]] = [
            *((f"{process}-{topic}", self._remake(topic)) for topic in TOPICS),
            *((f"{process}-writer{number}", self._write) for number in range(WRITERS)),
            (f"{process}-sink", self._sink),
            (f"{process}-committer", self._store),
        ]
        async with trio.open_nursery() as nursery:
            for name, client in clients:
                nursery.start_soon(self._again, name, client, Random(rng.getrandbits(64)))

    async def _again(self, process: str, client: Client, rng: Random) -> None:
        while not self.stop.is_set():
            try:
                await client(process, rng)
            except (OdradekError, GivenUp) as error:
                self.world.trace("error", process, type(error).__name__, error)
            await trio.sleep(rng.expovariate(1 / PAUSE_SECONDS))

    # topics

    def _remake(self, topic: str) -> Client:
        async def remake(process: str, rng: Random) -> None:
            async with self.world.admin(process, **self.options) as admin:
                while not self.stop.is_set():
                    await self._make(admin, topic, rng)
                    with trio.move_on_after(rng.uniform(*LIFE_SECONDS)):
                        await self.stop.wait()
                        return
                    self.judge_markers(topic)
                    with suppress(OdradekError):
                        await admin.delete_topics(topic)
                    await trio.sleep(rng.uniform(*ABSENT_SECONDS))

        return remake

    async def _make(self, admin: Admin, topic: str, rng: Random) -> None:
        begun = trio.current_time()
        await admin.create_topic(topic, partitions=rng.randint(1, PARTITIONS))
        found = None if self._is_dark else self.world.image().topics.get(topic)
        if found is not None:
            made = trio.current_time()
            making = Making(name=topic, begun=begun, made=made)
            if self.makings.setdefault(found.topic_id, making) is making:
                self.world.reached("a topic under load was made anew")

    @property
    def _is_dark(self) -> bool:
        """Return True while nothing can be seen: the only broker is down."""
        return self.world.is_alone and self.world.machines[1].core is None

    # clients

    def _some_partition(self, rng: Random) -> Partition:
        return rng.choice(TOPICS), rng.randrange(PARTITIONS)

    def begin(self) -> int:
        """Note a new transaction. Return its number."""
        self.outcomes.append(Outcome.FAIL)
        return len(self.outcomes) - 1

    def new_write(self, transaction: int, where: Partition) -> bytes:
        """Note a record that is about to be sent. Return its value."""
        value = b"anew-%d" % len(self.writes)
        began = trio.current_time()
        self.writes[value] = Write(transaction=transaction, where=where, began=began)
        return value

    async def _write(self, process: str, rng: Random) -> None:
        """Write one transaction by single requests, under an id that no other one has."""
        transaction = self.begin()
        async with self._producer(process, rng) as producer:
            await producer.init()
            with suppress(GivenUp):
                for _ in range(rng.randint(1, 5)):
                    if rng.random() < OFFSETS_PROBABILITY:
                        await producer.store(*self._some_partition(rng))
                    else:
                        where = self._some_partition(rng)
                        value = self.new_write(transaction, where)
                        await producer.write(*where, value)
                        self.writes[value].is_acknowledged = True
                    await trio.sleep(rng.expovariate(1 / PAUSE_SECONDS))
            is_commit = rng.random() >= ABORT_PROBABILITY
            if is_commit:
                self.outcomes[transaction] = Outcome.INFO
            await producer.end(committed=is_commit)
            if is_commit:
                self.outcomes[transaction] = Outcome.OK
            await producer.init()  # its id is free again
            self.world.reached("an id was free after its topics were made anew")

    async def _store(self, process: str, rng: Random) -> None:
        """Store offsets without a transaction."""
        async with self._producer(process, rng) as producer:
            while not self.stop.is_set():
                with suppress(GivenUp):
                    await producer.store_by_hand(*self._some_partition(rng))
                await trio.sleep(rng.expovariate(1 / PAUSE_SECONDS))

    @asynccontextmanager
    async def _producer(self, process: str, rng: Random) -> AsyncIterator["AnewProducer"]:
        producer = AnewProducer(self, f"{process}-{rng.getrandbits(48)}", rng)
        try:
            yield producer
        finally:
            with trio.CancelScope(shield=True):
                await producer.close()

    async def _sink(self, process: str, rng: Random) -> None:
        """Commit the transactions of a group, whose members write to any of the topics."""
        name = f"{process}-{rng.getrandbits(48)}"
        transaction = self.begin()
        options = {**self.options, "max_block_ms": PATIENT["max_block_ms"]}
        async with self.world.group(name, **options) as group:
            members = []
            for member in range(rng.randint(1, 3)):
                async with (
                    self.world.producer(
                        name,
                        transactional_id=group.transactional_id(f"{member}"),
                        transaction_timeout_ms=self.transaction_timeout_ms,
                        **{**self.options, **PATIENT},
                    ) as producer,
                    producer.transaction() as block,
                ):
                    values = []
                    for _ in range(rng.randint(1, 3)):
                        where = self._some_partition(rng)
                        values.append(self.new_write(transaction, where))
                        await block.send(where[0], values[-1], partition=where[1])
                        await trio.sleep(rng.expovariate(1 / PAUSE_SECONDS))
                    members.append(await block.detach())
                    for value in values:
                        self.writes[value].is_acknowledged = True
            await trio.sleep(rng.expovariate(1 / PAUSE_SECONDS))
            self.outcomes[transaction] = Outcome.INFO
            try:
                await group.commit(members)
            except Aborted:
                self.outcomes[transaction] = Outcome.FAIL
                raise
            self.outcomes[transaction] = Outcome.OK
            self.world.reached("a sink committed to topics that are made anew")

    # the judge

    def judge_markers(self, topic: str) -> None:
        """Note the markers in the log of a topic whose transactions did nothing there."""
        for machine in self.world.machines.values():
            for index in range(PARTITIONS) if machine.core is not None and machine.is_up else ():
                where = Where(topic, index)
                partition = machine.core.partitions.find(where) if machine.core else None
                making = None if partition is None else self.makings.get(partition.topic_id)
                if making is None:
                    continue
                for header, _, marker in self._logs.batches(machine, where):
                    known = self.attempts.get(header.producer_id)
                    last = inf if known is None else known.get(topic, -inf)
                    if marker is not None and last < making.begun:
                        self.violations.append(
                            f"anew: {partition!r} was made after {making.begun:.3f} and has a "
                            f"marker of producer {header.producer_id}, which was last there at "
                            f"{last:.3f}"
                        )

    async def judge(
        self, admin: Admin, read: Callable[[TopicPartition], Awaitable[list[Found]]]
    ) -> None:
        """Judge what is there in the end. `read` returns what is committed in a partition."""
        found: dict[bytes, Partition] = {}
        makings: dict[str, Making] = {}
        for topic in TOPICS:
            self.judge_markers(topic)
            image = self.world.image().topics.get(topic)
            making = None if image is None else self.makings.get(image.topic_id)
            if image is None or making is None:
                continue
            places = [TopicPartition(topic, index) for index in range(len(image.partitions))]
            for place in places:
                for _, value in await read(place):
                    if value in found:
                        self.violations.append(f"anew: {value!r} is there twice, in {place}")
                    found[value] = (topic, place.partition)
            makings[topic] = making
            stored = await admin.committed(GROUP, places)
            for place, offset in stored.items():
                last = self.stored.get(offset.metadata, inf)
                if last < making.begun:
                    self.violations.append(
                        f"anew: {place} was made after {making.begun:.3f}, and {GROUP} has an "
                        f"offset for it that was stored at {last:.3f}: {offset}"
                    )
        self.violations += self._wrong_records(makings, found)

    def _wrong_records(
        self, makings: dict[str, Making], found: dict[bytes, Partition]
    ) -> Iterator[str]:
        """Yield what is wrong with the records of the last topic of each name."""
        there: dict[int, set[bool]] = {}
        for value, write in self.writes.items():
            outcome = self.outcomes[write.transaction]
            making = makings.get(write.where[0])
            if value in found and outcome is Outcome.FAIL:
                yield f"anew: {value!r} is visible in {found[value]}, and was not committed"
            # What was sent before is in this topic, or in the one before.
            if making is None or not write.is_acknowledged or write.began < making.made:
                continue
            there.setdefault(write.transaction, set()).add(value in found)
            if outcome is Outcome.OK and value not in found:
                yield f"anew: {value!r} was committed to {write.where}, and is not there"
        for transaction, seen in there.items():
            if len(seen) > 1:
                yield f"anew: a part of transaction {transaction} is there, and a part is not"


class AnewProducer(RawProducer):
    """A producer that notes when it has last done something."""

    def __init__(self, anew: Anew, name: str, rng: Random) -> None:
        self._anew = anew
        version = rng.randrange(len(VERSIONS))
        super().__init__(
            anew.world,
            name,
            rng,
            transaction_version=version,
            timeout_ms=anew.transaction_timeout_ms,
        )
        self._is_lost = False
        """True if a request was not answered: it may arrive at any time."""

    async def ask(
        self,
        node: int,
        api: Api[Any, Any],
        version: int,
        request: Any,
        *,
        seconds: float = ANSWER_SECONDS,
    ) -> Any:
        if node not in self._world.machines:
            raise OSError("no broker leads")
        try:
            return await super().ask(node, api, version, request, seconds=seconds)
        except (OSError, trio.Cancelled):
            self._is_lost = True
            raise

    @property
    def _now(self) -> float:
        return inf if self._is_lost else trio.current_time()

    async def write(self, topic: str, partition: int, value: bytes) -> None:
        attempts = self._anew.attempts.setdefault(self.producer[0], {})
        attempts[topic] = inf
        try:
            await self.send(topic, partition, value, patience=PATIENCE_SECONDS)
        finally:
            attempts[topic] = self._now

    async def store(self, topic: str, partition: int) -> None:
        """Store an offset in the transaction."""
        producer_id, epoch = self.producer
        if self._versions.add is not None:
            adding = AddOffsetsToTxnRequest(
                transactional_id=self.name,
                producer_id=producer_id,
                producer_epoch=epoch,
                group_id=GROUP,
            )
            await self._ask_coordinator(ADD_OFFSETS_TO_TXN, 3, adding)
        self._added[GROUP, 0] = None

        def request(metadata: str) -> TxnOffsetCommitRequest:
            offset = TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=1, committed_metadata=metadata
            )
            return TxnOffsetCommitRequest(
                transactional_id=self.name,
                group_id=GROUP,
                producer_id=producer_id,
                producer_epoch=epoch,
                topics=(TxnOffsetCommitRequestTopic(name=topic, partitions=(offset,)),),
            )

        await self._store(TXN_OFFSET_COMMIT, 5 if self._versions.add is None else 3, request)

    async def store_by_hand(self, topic: str, partition: int) -> None:
        """Store an offset as no member of the group."""

        def request(metadata: str) -> OffsetCommitRequest:
            offset = OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=1, committed_metadata=metadata
            )
            return OffsetCommitRequest(
                group_id=GROUP,
                generation_id_or_member_epoch=BY_HAND,
                member_id="",
                topics=(OffsetCommitRequestTopic(name=topic, partitions=(offset,)),),
            )

        await self._store(OFFSET_COMMIT, 8, request)

    async def _store(self, api: Api[Any, Any], version: int, request: Callable[[str], Any]) -> None:
        metadata = f"anew-{len(self._anew.stored)}"
        self._anew.stored[metadata] = inf
        try:
            await self._ask_coordinator(
                api, version, request(metadata), group=GROUP, patience=PATIENCE_SECONDS
            )
        finally:
            self._anew.stored[metadata] = self._now
