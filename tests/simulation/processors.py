"""An application that shares its input: processors of one consumer group that copy exactly once.

Each is our client as docs/groups.md shows it: it subscribes, copies what it is given in a
transaction, and stores the offsets in it as the member that has read them (KIP-447). Processors
end, are killed, are cut off until others have their partitions, and are slower than they may be.
Their group has members of the classic protocol, of the new one (KIP-848), or of both. They read in
the order of offsets, or of commits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import trio

from odradek.broker.values.topic_partition import TopicPartition as Where
from odradek.client import Aborted, Consumer, OdradekError, Producer, TopicPartition
from odradek.client.config import GroupProtocol, Order
from odradek.client.types import AssignorName
from tests.checker.anomaly import Anomaly
from tests.checker.copies import check_copies, copy_of
from tests.checker.history import History, Outcome, Partition
from tests.simulation.journal import Journal, by_partition
from tests.simulation.world import SESSION_MS, World

GROUP: Final = "sharers"
PROCESSORS: Final = 3
PROTOCOLS: Final[tuple[tuple[GroupProtocol, ...], ...]] = (
    ("classic",),
    ("consumer",),
    ("classic", "consumer"),
)
ASSIGNORS: Final[tuple[AssignorName, ...]] = (
    *("cooperative-sticky", "sticky", "range", "roundrobin"),
)
ORDERS: Final[tuple[Order, ...]] = ("offset", "commit")
POLL_INTERVAL_MS: Final = 2 * SESSION_MS
TRANSACTION_MS: Final = 3 * SESSION_MS
"""The time-out of transactions: the group is quicker to give the partitions to others."""
LIFE_SECONDS: Final = (0.5, 5.0)
KILLED_PROBABILITY: Final = 0.5
AWAY_PROBABILITY: Final = 0.08
AWAY_SECONDS: Final = (0.3 * SESSION_MS / 1000, 2.0 * SESSION_MS / 1000)
SLOW_PROBABILITY: Final = 0.3
ABORT_PROBABILITY: Final = 0.05
SHARED: Final = b"shared"
"""The values of copies begin with it."""


class OnPurpose(Exception):
    """Ends a transaction by an exception of the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How the members of the group read."""

    protocols: tuple[GroupProtocol, ...]
    assignor: AssignorName
    order: Order


class Application:
    """The processors, and what they have done."""

    def __init__(
        self,
        world: World,
        journal: Journal,
        *,
        source: str,
        partitions: int,
        target: str,
        options: dict[str, Any],
    ) -> None:
        """`options`: of every client."""
        self.world = world
        self.journal = journal
        self.source = source
        self.target = target
        self.options = options
        self.is_input_whole = trio.Event()
        """Set when nothing is written to the source any more."""
        self.done: dict[TopicPartition, None] = {}
        """The partitions that are copied to their ends."""
        self._partitions = partitions

    @property
    def is_over(self) -> bool:
        return len(self.done) == self._partitions

    async def live(self, rng: Random) -> None:
        """Let processors come and go, until the input is whole and all of it is copied."""
        way = Way(
            protocols=rng.choice(PROTOCOLS),
            assignor=rng.choice(ASSIGNORS),
            order=rng.choice(ORDERS),
        )
        self.world.trace("processors", way)
        async with trio.open_nursery() as nursery:
            for number in range(PROCESSORS):
                processor = Processor(self, f"sharer{number}", way, Random(rng.getrandbits(64)))
                nursery.start_soon(processor.live_again_and_again)

    def wrong_copies(self, history: History) -> Iterator[Anomaly]:
        """Yield each record of the source that is not copied once."""
        return check_copies(history, source=self.source, target=self.target, by=SHARED)


class Processor:
    """One machine, on which one process of the application runs after the other."""

    def __init__(self, application: Application, name: str, way: Way, rng: Random) -> None:
        self._application = application
        self._world = application.world
        self._name = name
        self._way = way
        self._rng = rng

    async def live_again_and_again(self) -> None:
        while not self._application.is_over:
            await self._live()
            self._join_net()
            await trio.sleep(self._rng.uniform(0.0, 1.0))

    async def _live(self) -> None:
        leaves = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_soon, leaves, nursery.cancel_scope)
            try:
                async with self._producer() as producer, self._consumer() as consumer:
                    await self._process(producer, consumer, leaves)
            except OdradekError as error:
                self._world.trace("error", self._name, type(error).__name__, error)
                self._world.reached("a processor was made anew")
            nursery.cancel_scope.cancel()

    async def _end_soon(self, leaves: trio.Event, life: trio.CancelScope) -> None:
        """Let the process leave, or kill it. It lives on when the input is whole."""
        with trio.move_on_after(self._rng.uniform(*LIFE_SECONDS)):
            await self._application.is_input_whole.wait()
            return
        if self._rng.random() < KILLED_PROBABILITY:
            self._world.reached("a processor was killed")
            self._leave_net()
            life.cancel()
        else:
            leaves.set()

    def _producer(self) -> Producer:
        return self._world.producer(
            self._name,
            transactional_id=self._name,
            transaction_timeout_ms=TRANSACTION_MS,
            delivery_timeout_ms=8000,
            **self._application.options,
        )

    def _consumer(self) -> Consumer:
        protocol = self._rng.choice(self._way.protocols)
        classic: dict[str, Any] = {
            "partition_assignors": [self._way.assignor],
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": 200,
        }
        return self._world.consumer(
            self._name,
            group_id=GROUP,
            group_protocol=protocol,
            order=self._way.order,
            max_poll_interval_ms=POLL_INTERVAL_MS,
            fetch_max_wait_ms=300,
            **(classic if protocol == "classic" else {}),
            **self._application.options,
        )

    async def _process(self, producer: Producer, consumer: Consumer, leaves: trio.Event) -> None:
        """Copy what the group gives to the member, until it leaves or all is copied."""
        app = self._application
        consumer.subscribe(app.source)
        while not leaves.is_set() and not app.is_over:
            records = await consumer.poll(500, max_records=self._rng.randint(1, 20))
            if records:
                try:
                    await self._copy(producer, consumer, records)
                except OnPurpose:
                    consumer.seek_to_committed()
                except Aborted as error:
                    self._world.trace("aborted", self._name, error)
                    self._world.reached("a processor lost its partitions before its commit")
                    consumer.seek_to_committed()
            elif app.is_input_whole.is_set():
                positions = consumer.positions().items()
                app.done |= {
                    where: None
                    for where, position in positions
                    if position == self._log_end_offset(where)
                }

    def _log_end_offset(self, where: TopicPartition) -> int | None:
        machine = self._world.machines.get(self._world.leader_of(*where))
        core = None if machine is None else machine.core
        partition = None if core is None else core.partitions.find(Where(*where))
        return None if partition is None else partition.log_end_offset

    async def _copy(self, producer: Producer, consumer: Consumer, records: list[Any]) -> None:
        app = self._application
        number = app.journal.begin(self._name)
        member = consumer.group_metadata()
        offsets = consumer.offsets_to_commit()
        sends: list[tuple[Partition, bytes]] = []
        outcome = Outcome.FAIL
        try:
            async with producer.transaction() as transaction:
                for record in records:
                    value = copy_of(record.value, by=SHARED, number=number)
                    sends.append(((app.target, record.partition), value))
                    await transaction.send(app.target, value, partition=record.partition)
                await self._be_away()
                await transaction.send_offsets(offsets, member)
                await self._be_away()
                if self._rng.random() < ABORT_PROBABILITY:
                    raise OnPurpose
                outcome = Outcome.INFO
                app.journal.note(number, commit_asked=trio.current_time())
            outcome = Outcome.OK
            self._world.reached("a processor committed")
        except Aborted:
            outcome = Outcome.FAIL
            raise
        finally:
            polled = by_partition(records)
            app.journal.note(number, sends=sends, polled=polled, outcome=outcome)
            self._world.trace("copied", number, self._name, outcome.name)

    async def _be_away(self) -> None:
        """Compute for long, or be cut off, now and then: others get the partitions meanwhile."""
        if self._rng.random() >= AWAY_PROBABILITY:
            return
        seconds = self._rng.uniform(*AWAY_SECONDS)
        if self._rng.random() < SLOW_PROBABILITY:
            await trio.sleep(2 * seconds)
            return
        self._leave_net()
        await trio.sleep(seconds)
        self._join_net()

    def _leave_net(self) -> None:
        for machine in self._world.machines.values():
            self._world.net.cut(self._name, machine.host.name)

    def _join_net(self) -> None:
        links = [(self._name, machine.host.name) for machine in self._world.machines.values()]
        self._world.net.heal(*links)
