"""The load of a simulation: clients that write, copy and read, and note what became of it.

All but the raw writers are our client, with its own retries. A client that meets an error it cannot
handle is made anew, as a program that is restarted.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Final

import trio

from odradek.client import (
    Aborted,
    Admin,
    Consumer,
    DetachedTransaction,
    OdradekError,
    Producer,
    Refused,
    TopicPartition,
    TransactionGroup,
)
from odradek.protocol.errors import ErrorCode
from tests.checker.history import Found, GroupPartition, History, Outcome, Partition, Poll
from tests.simulation.acls import Rights
from tests.simulation.anew import Anew
from tests.simulation.journal import Journal, by_partition, place
from tests.simulation.members import Crowd
from tests.simulation.old_producers import make_old
from tests.simulation.processors import Application, OnPurpose
from tests.simulation.rare_load import RARE
from tests.simulation.raw import VERSIONS, GivenUp, RawProducer
from tests.simulation.world import World

TOPIC: Final = "orders"
COPIES: Final = "copies"
PARTITIONS: Final = 3
RENEWED: Final = "renewed"
GROUP: Final = "copier"
WRITERS: Final = 3
ABORT_PROBABILITY: Final = 0.12
DAWDLE_PROBABILITY: Final = 0.04
PAUSE_SECONDS: Final = 0.05
GROUPS: Final = "group"
"""The name of the client that ends transactions of several producers together."""
CROWD: Final = "members"
"""The name of the members of a consumer group."""
SHARERS: Final = "sharers"
"""The name of the processors of a group that copy exactly once."""
ANEW: Final = "anew"
"""The name of the clients of topics that are made anew."""
ACLS: Final = "acls"
"""The name of the users whose rights change."""
MEMBERS_MAX: Final = 4
FINAL_SECONDS: Final = 30.0


class Load:
    """The clients of one world."""

    def __init__(
        self, world: World, *, transaction_timeout_ms: int, rare: Sequence[str] = ()
    ) -> None:
        """`rare`: names of clients of `rare_load.py`, or those above from `GROUPS` to `ACLS`."""
        self.world = world
        self.crowd = Crowd(world) if CROWD in rare else None
        self._rare = [name for name in rare if name != SHARERS]
        self.journal = Journal()
        self.stop = trio.Event()
        self.ended = trio.Event()
        self._rng = world.rngs["load"]
        self._timeouts: dict[str, Any] = {
            "request_timeout_ms": 2000,
            "max_block_ms": 8000,
            "retry_backoff_max_ms": 300,
        }
        self._transaction_timeout_ms = transaction_timeout_ms
        self._values: defaultdict[str, int] = defaultdict(int)
        self.application = self._sharing() if SHARERS in rare else None
        self.anew = self._remaking() if ANEW in rare else None
        self.rights = Rights(world, self.stop) if ACLS in rare else None

    def _sharing(self) -> Application:
        return Application(
            self.world,
            self.journal,
            source=TOPIC,
            partitions=PARTITIONS,
            target=COPIES,
            options=self._timeouts,
        )

    def _remaking(self) -> Anew:
        return Anew(self.world, self.stop, self._timeouts, self._transaction_timeout_ms)

    async def prepare(self) -> None:
        """Create the topics. That waits for all brokers: a fault may have one down."""
        async with self.world.admin(**self._timeouts) as admin:
            for topic in (TOPIC, COPIES):
                while True:
                    try:
                        await admin.create_topic(topic, partitions=PARTITIONS, if_not_exists=True)
                        break
                    except Refused as error:
                        if error.code is not ErrorCode.INVALID_REPLICATION_FACTOR:
                            raise
                    await trio.sleep(0.1)

    async def make_producers_old(self) -> None:
        """Let the epochs of all transactional producers be near the last one."""
        async with self._producer("writer0"):
            pass  # now there is the state topic
        raw = [f"raw{version}" for version in range(len(VERSIONS))]
        writers = [f"writer{number}" for number in range(WRITERS)]
        await make_old(self.world, [*writers, *raw, "copier", "renewer"])

    async def run(self) -> None:
        """Write and read until `stop` is set, and end what is open then."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._again, "reader", self._read)
            async with trio.open_nursery() as processors:
                if self.application is not None:
                    rng = Random(self._rng.getrandbits(64))
                    processors.start_soon(self.application.live, rng)
                async with trio.open_nursery() as writers:
                    for number in range(WRITERS):
                        writers.start_soon(self._again, f"writer{number}", self._write)
                    writers.start_soon(self._again, "single", self._write_single)
                    writers.start_soon(self._again, "copier", self._copy)
                    for version in range(len(VERSIONS)):
                        write = partial(self._write_raw, transaction_version=version)
                        writers.start_soon(self._again, f"raw{version}", write)
                    writers.start_soon(self._again, "renewer", self._renew)
                    for name in self._rare:
                        writers.start_soon(self._again, name, self._rare_client(name))
                if self.application is not None:
                    self.application.is_input_whole.set()
            nursery.cancel_scope.cancel()
        self.ended.set()

    def _rare_client(self, name: str) -> Callable[[str, Random], Awaitable[None]]:
        if name == GROUPS:
            return self._decide
        if self.crowd is not None and name == CROWD:
            return partial(self.crowd.live, self.stop)
        if self.anew is not None and name == ANEW:
            return self.anew.live
        if self.rights is not None and name == ACLS:
            return self.rights.live
        return partial(RARE[name], self.world, self.stop)

    async def _again(self, process: str, client: Callable[[str, Random], Awaitable[None]]) -> None:
        """Run a client again and again: one that fails is made anew."""
        rng = Random(self._rng.getrandbits(64))
        while not self.stop.is_set():
            try:
                await client(process, rng)
            except (OdradekError, GivenUp) as error:
                self.world.trace("error", process, type(error).__name__, error)
                self.world.reached(f"{process.rstrip('0123456789')} was made anew")
                await trio.sleep(0.1)

    def _value(self, process: str) -> bytes:
        self._values[process] += 1
        return b"%s-%d" % (process.encode(), self._values[process])

    def _producer(self, process: str) -> Producer:
        return self.world.producer(
            process,
            transactional_id=process,
            transaction_timeout_ms=self._transaction_timeout_ms,
            delivery_timeout_ms=8000,
            **self._timeouts,
        )

    def _end(self, number: int, outcome: Outcome) -> None:
        self.journal.note(number, outcome=outcome)
        self.world.trace("ended", number, self.journal.transactions[number].process, outcome.name)

    # transactions

    async def _write(self, process: str, rng: Random) -> None:
        async with self._producer(process) as producer:
            while not self.stop.is_set():
                await self._transaction(process, producer, rng)
                await trio.sleep(rng.expovariate(1 / PAUSE_SECONDS))

    async def _transaction(self, process: str, producer: Producer, rng: Random) -> None:
        transaction = producer.transaction()
        number = self.journal.begin(process)
        sends: list[tuple[Partition, bytes]] = []
        deliveries = []
        try:
            async with transaction:
                for _ in range(rng.randint(1, 5)):
                    partition = (TOPIC, rng.randrange(PARTITIONS))
                    value = self._value(process)
                    sends.append((partition, value))
                    deliveries.append(
                        (value, await transaction.send(TOPIC, value, partition=partition[1]))
                    )
                if rng.random() < DAWDLE_PROBABILITY:
                    await trio.sleep(rng.uniform(0.5, 1.5) * self._transaction_timeout_ms / 1000)
                if rng.random() < ABORT_PROBABILITY:
                    raise OnPurpose
                self.journal.note(number, sends=sends, commit_asked=trio.current_time())
            self._end(number, Outcome.OK)
        except OnPurpose:
            self._end(number, Outcome.FAIL)
        finally:
            asked = self.journal.transactions[number].commit_asked
            if asked == float("inf"):
                self._end(number, Outcome.FAIL)
            acknowledged = {
                value: delivery.result_nowait().offset
                for value, delivery in deliveries
                if self.journal.transactions[number].outcome is Outcome.OK
            }
            self.journal.note(number, sends=sends, acknowledged=acknowledged)

    async def _decide(self, process: str, rng: Random) -> None:
        """Commit the transactions of several producers together, or abort them."""
        async with self.world.group(process, **self._timeouts) as group:
            while not self.stop.is_set():
                await self._decide_once(process, group, rng)
                await trio.sleep(rng.expovariate(1 / PAUSE_SECONDS))

    async def _decide_once(self, process: str, group: TransactionGroup, rng: Random) -> None:
        number = self.journal.begin(process)
        sends: list[tuple[Partition, bytes]] = []
        members: list[DetachedTransaction] = []
        outcome = Outcome.FAIL
        try:
            for member in range(rng.randint(1, MEMBERS_MAX)):
                members.append(await self._detached(group, f"{member}", process, sends, rng))
            rng.shuffle(members)
            if rng.random() < DAWDLE_PROBABILITY:
                await trio.sleep(rng.uniform(0.5, 1.5) * self._transaction_timeout_ms / 1000)
            if rng.random() < ABORT_PROBABILITY:
                await group.abort(members)
            else:
                self.journal.note(number, commit_asked=trio.current_time())
                outcome = Outcome.INFO
                await group.commit(members)
                outcome = Outcome.OK
                self.world.reached("a transaction group was committed")
        except Aborted:
            outcome = Outcome.FAIL
            self.world.reached("a transaction group could not be committed")
            raise
        finally:
            self.journal.note(number, sends=sends)
            self._end(number, outcome)

    async def _detached(
        self,
        group: TransactionGroup,
        member: str,
        process: str,
        sends: list[tuple[Partition, bytes]],
        rng: Random,
    ) -> DetachedTransaction:
        async with (
            self._producer(group.transactional_id(member)) as producer,
            producer.transaction() as transaction,
        ):
            for _ in range(rng.randint(0, 3)):
                partition = (TOPIC, rng.randrange(PARTITIONS))
                value = self._value(process)
                sends.append((partition, value))
                await transaction.send(TOPIC, value, partition=partition[1])
            return await transaction.detach()

    async def _write_single(self, process: str, rng: Random) -> None:
        """Write records without a transaction."""
        options = {"delivery_timeout_ms": 8000, **self._timeouts}
        async with self.world.producer(process, **options) as producer:
            while not self.stop.is_set():
                partition = (TOPIC, rng.randrange(PARTITIONS))
                value = self._value(process)
                number = self.journal.begin(process)
                self.journal.note(
                    number, sends=[(partition, value)], commit_asked=trio.current_time()
                )
                metadata = await (await producer.send(TOPIC, value, partition=partition[1]))
                self.journal.note(number, acknowledged={value: metadata.offset})
                self._end(number, Outcome.OK)
                await trio.sleep(rng.expovariate(1 / PAUSE_SECONDS))

    async def _write_raw(self, process: str, rng: Random, *, transaction_version: int) -> None:
        """Write transactions by single requests."""
        producer = RawProducer(
            self.world,
            process,
            rng,
            transaction_version=transaction_version,
            timeout_ms=self._transaction_timeout_ms,
        )
        try:
            await producer.init()
            while not self.stop.is_set():
                await self._raw_transaction(process, producer, rng)
                await trio.sleep(rng.expovariate(1 / PAUSE_SECONDS))
        finally:
            with trio.CancelScope(shield=True):
                await producer.close()

    async def _raw_transaction(self, process: str, producer: RawProducer, rng: Random) -> None:
        number = self.journal.begin(process)
        sends: list[tuple[Partition, bytes]] = []
        acknowledged: dict[bytes, int] = {}
        outcome = Outcome.FAIL
        try:
            for _ in range(rng.randint(1, 4)):
                partition = (TOPIC, rng.randrange(PARTITIONS))
                value = self._value(process)
                sends.append((partition, value))
                acknowledged[value] = await producer.send(TOPIC, partition[1], value)
            if rng.random() < ABORT_PROBABILITY:
                await producer.end(committed=False)
            else:
                self.journal.note(number, commit_asked=trio.current_time())
                outcome = Outcome.INFO
                await producer.end(committed=True)
                outcome = Outcome.OK
        finally:
            self.journal.note(number, sends=sends, acknowledged=acknowledged)
            self._end(number, outcome)

    async def _renew(self, process: str, rng: Random) -> None:
        """Create a topic, write to it in transactions, and delete it, again and again.

        What it writes is not checked. Transactions must end although their topic has gone.
        """
        async with self.world.admin(process, **self._timeouts) as admin:
            while not self.stop.is_set():
                await admin.create_topic(RENEWED, partitions=2, if_not_exists=True)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._delete_soon, admin, rng)
                    with suppress(OdradekError):
                        await self._write_renewed(process, rng)
                self.world.reached("a topic was made anew")

    async def _write_renewed(self, process: str, rng: Random) -> None:
        async with self._producer(process) as producer, producer.transaction() as transaction:
            for partition in (0, 1, 0):
                await transaction.send(RENEWED, b"r", partition=partition)
                await trio.sleep(rng.expovariate(1 / PAUSE_SECONDS))

    async def _delete_soon(self, admin: Admin, rng: Random) -> None:
        await trio.sleep(rng.uniform(0.1, 1.0))
        with suppress(OdradekError):
            await admin.delete_topics(RENEWED)

    # reading

    def _consumer(self, process: str, **options: Any) -> Consumer:
        return self.world.consumer(process, fetch_max_wait_ms=300, **self._timeouts, **options)

    async def _read(self, process: str, rng: Random) -> None:
        async with self._consumer(process) as consumer:
            consumer.assign([(TOPIC, number) for number in range(PARTITIONS)])
            await consumer.seek_to_beginning()
            continues = False
            while True:
                records = await consumer.poll(max_records=rng.choice((1, 10, 100)))
                found = by_partition(records)
                if found:
                    self.journal.polls.append(
                        Poll(
                            process=process,
                            records=found,
                            ended=trio.current_time(),
                            continues=continues,
                        )
                    )
                    continues = True
                    self.world.trace("read", sorted(found.items()))

    async def _copy(self, process: str, rng: Random) -> None:
        """Copy every record in transactions that store the position of a group (exactly once)."""
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        async with (
            self._producer(process) as producer,
            self._consumer(process, group_id=GROUP) as consumer,
        ):
            consumer.assign(partitions)
            while not self.stop.is_set():
                before = {each: await consumer.position(each) for each in partitions}
                records = await consumer.poll(max_records=rng.randint(1, 20))
                if records:
                    await self._copy_once(process, producer, before, consumer, records)

    async def _copy_once(
        self,
        process: str,
        producer: Producer,
        before: dict[TopicPartition, int],
        consumer: Consumer,
        records: list[Any],
    ) -> None:
        number = self.journal.begin(process)
        after = consumer.positions()
        takes: dict[GroupPartition, tuple[int, int]] = {
            (GROUP, place(each)): (before[each], after[each])
            for each in before
            if after[each] > before[each]
        }
        sends: list[tuple[Partition, bytes]] = []
        try:
            transaction = producer.transaction()
            async with transaction:
                for record in records:
                    value = b"copy %d of %s" % (number, record.value)
                    sends.append(((COPIES, record.partition), value))
                    await transaction.send(COPIES, value, partition=record.partition)
                offsets = {each: after[each] for each in before if after[each] > before[each]}
                await transaction.send_offsets(offsets, GROUP)
                self.journal.note(number, commit_asked=trio.current_time())
            self._end(number, Outcome.OK)
        finally:
            self.journal.note(number, sends=sends, takes=takes, polled=by_partition(records))
            if self.journal.transactions[number].commit_asked == float("inf"):
                self._end(number, Outcome.FAIL)

    # the end

    async def history(self) -> History:
        """Read everything with a fresh reader, and return it with what the clients did."""
        log: dict[Partition, list[Found]] = {}
        # It connects to the silent address of a dead broker first, and waits for it.
        self._timeouts = {**self._timeouts, "max_block_ms": round(FINAL_SECONDS * 1000)}
        async with self._consumer("final") as consumer:
            partitions = [
                TopicPartition(topic, number)
                for topic in (TOPIC, COPIES)
                for number in range(PARTITIONS)
            ]
            for partition in partitions:
                log[place(partition)] = await _everything_in(consumer, partition)
        async with (
            self.world.admin("final", **self._timeouts) as admin,
            self._consumer("final") as consumer,
        ):
            stored = await admin.committed(
                GROUP, [*(TopicPartition(TOPIC, n) for n in range(PARTITIONS))]
            )
            if self.crowd is not None:
                await self.crowd.read_final(admin)
            if self.anew is not None:
                await self.anew.judge(admin, partial(_everything_in, consumer))
            if self.rights is not None:
                self.rights.judge_at_rest()
        return History(
            transactions=self.journal.transactions,
            log=log,
            stored_offsets={},
            polls=self.journal.polls,
            group_offsets={
                (GROUP, (TOPIC, n)): stored[TopicPartition(TOPIC, n)].offset
                if TopicPartition(TOPIC, n) in stored
                else None
                for n in range(PARTITIONS)
            },
        )


async def _everything_in(consumer: Consumer, partition: TopicPartition) -> list[Found]:
    """Return all committed records of a partition."""
    consumer.assign([partition])
    await consumer.seek_to_end()
    end = await consumer.position(partition)
    await consumer.seek_to_beginning()
    found: list[Found] = []
    with trio.fail_after(FINAL_SECONDS):
        while await consumer.position(partition) < end:
            records = await consumer.poll()
            found += [(record.offset, record.value or b"") for record in records]
    return found
