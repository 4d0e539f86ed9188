"""Real brokers in one process: each with a disk, a network and a metadata store in memory.

A world of one broker is one node as users run it: its metadata store is on its own disk. In a world
of several, all share a simulated store.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from random import Random
from typing import Any, Final

import trio

from odradek.broker.cluster.image import ClusterImage
from odradek.broker.cluster.metadata import ImageBuilder
from odradek.broker.environment.env import inline
from odradek.broker.values.topic_partition import TopicPartition
from odradek.client import Admin, Consumer, Producer, TransactionGroup
from tests.broker.config.configured import from_properties
from tests.fakes.meta_store import FakeMetaStore, MetaServer
from tests.simulation.machine import CLIENT_PORT, DIRECTORY, Machine, SimClock
from tests.simulation.net import Net
from tests.simulation.scheduling import PROCESS

SESSION_MS: Final = 1500
"""The time after which a silent member of a group is removed."""
SMALL: Final = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "num.partitions": "3",
    "group.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "200",
}
REPLICATED: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.replication.factor": "3",
}
SUPERVISOR_SECONDS: Final = 0.5
"""The time after which a broker is started again that has ended by itself."""
STORE_SECONDS: Final = 0.002
"""The mean time of a request to the metadata store, and of its answer."""
CONCERNS: Final = ("net", "brokers", "disk", "load", "faults", "store")


class Trace(logging.Handler):
    """All that happens, in order, as one hash. Log lines of the brokers belong to it."""

    def __init__(self, *, keeps_lines: bool = False) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] | None = [] if keeps_lines else None
        self.count = 0
        self.tracebacks: list[str] = []
        """Log records with an exception: a broker did not expect what happened."""
        self._hash = hashlib.sha256()

    def __call__(self, *what: object) -> None:
        line = f"{trio.current_time():.9f} {' '.join(map(str, what))}"
        self.count += 1
        self._hash.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        where = "client" if process is None else process.name
        line = f"{where} {record.levelname} {record.name}: {record.getMessage()}"
        if record.exc_info or record.levelno >= logging.CRITICAL:
            self.tracebacks.append(line + " " + repr(record.exc_info and record.exc_info[1]))
        self("log", line)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()[:16]


class World:
    """Brokers, their metadata store, and clients of them."""

    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        brokers: int = 3,
        seed: int = 1,
        properties: Mapping[str, str] | None = None,
        trace: Trace | None = None,
        stall_probability: float = 0.0,
    ) -> None:
        master = Random(seed)
        self.nursery = nursery
        self.trace = trace or Trace()
        self.marks: Counter[str] = Counter()
        """How often each rare point was reached."""
        self.rngs = {name: Random(master.getrandbits(64)) for name in CONCERNS}
        self.stall_probability = stall_probability
        self._damage: dict[tuple[int, TopicPartition], Callable[[], bool]] = {}
        self._image: ClusterImage | None = None
        self.is_staged = False
        """True while a fault of `staged.py` is under way."""
        self.calm_since = inf if stall_probability else -inf
        """The time since which no fault holds up what a broker is told by the metadata store."""
        self._holding_up = 0
        self.went_down: set[int] = set()
        """The machines that lost power and may not have all acknowledged records again."""
        self.net = Net(self.rngs["net"], self.trace)
        self.store = MetaServer()
        self.machines = {
            node_id: self._machine(node_id, brokers, properties or {})
            for node_id in range(1, brokers + 1)
        }

    def _machine(self, node_id: int, brokers: int, properties: Mapping[str, str]) -> Machine:
        given = {**SMALL, **(REPLICATED if brokers >= 3 else {}), **properties}
        machine = Machine(
            node_id=node_id,
            host=self.net.host(f"broker{node_id}"),
            meta=self._store() if brokers > 1 else None,
            config=from_properties({**given, "node.id": str(node_id)}),
            rng=self.rngs["brokers"],
            disk_rng=Random(self.rngs["disk"].getrandbits(64)),
            reached=self.reached,
        )
        machine.stall_probability = self.stall_probability
        return machine

    def _store(self) -> FakeMetaStore:
        """Return the metadata store as one broker reaches it."""
        store = FakeMetaStore(self.store, max_operations=128)
        rng = Random(self.rngs["store"].getrandbits(64))
        store.delay_s = store.watch_delay_s = lambda: rng.expovariate(1 / STORE_SECONDS)
        return store

    def reached(self, mark: str) -> None:
        self.marks[mark] += 1

    @property
    def is_alone(self) -> bool:
        return len(self.machines) == 1

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{m.host.name}:{CLIENT_PORT}" for m in self.machines.values())

    async def start(self, *node_ids: int) -> None:
        """Start brokers, all of them unless some are named, and wait until they serve."""
        async with trio.open_nursery() as starting:
            for node_id in node_ids or tuple(self.machines):
                starting.start_soon(self._start_one, self.machines[node_id])

    async def _start_one(self, machine: Machine) -> None:
        await self.nursery.start(machine.run)

    async def restart(self, node_id: int) -> None:
        """Start a killed broker again, and wait until it serves."""
        machine = self.machines[node_id]
        await machine.ended()
        machine.restore()
        await self.start(node_id)

    async def restart_after(self, node_id: int, seconds: float) -> None:
        await trio.sleep(seconds)
        await self.restart(node_id)

    # under faults

    def live(self, machine: Machine) -> None:
        """Start a broker, and start it again whenever it ends by itself, as a supervisor does."""
        self.nursery.start_soon(self._live, machine)

    async def _live(self, machine: Machine) -> None:
        await machine.run()
        while machine.failure is not None:
            self.trace("failed", machine.node_id)
            self.reached("a broker ended by itself")
            await trio.sleep(SUPERVISOR_SECONDS)
            if machine.is_left:
                return
            machine.disk.kill()
            machine.host.down(is_heard=True)
            machine.host.up()
            await machine.run()

    def revive(self, machine: Machine) -> None:
        """Start a broker again that was killed, stopped, or lost its power."""
        assert not machine.is_running, machine.node_id
        machine.restore()
        self.live(machine)

    def restart_soon(self, machine: Machine) -> None:
        """Kill a broker if it runs, and start it again."""
        self.nursery.start_soon(self._restart, machine)

    async def _restart(self, machine: Machine) -> None:
        if machine.is_running and not machine.is_taken:
            machine.is_taken = True
            machine.kill()
            await machine.ended()
            machine.is_taken = False
            self.revive(machine)

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """Note that brokers may hear late of changes in the metadata store during the block."""
        self._holding_up += 1
        self.calm_since = inf
        try:
            yield
        finally:
            self._holding_up -= 1
            if not self._holding_up and not self.stall_probability:
                self.calm_since = trio.current_time()

    def may_lose_power(self, machine: Machine) -> bool:
        """Return True if nothing that is acknowledged is lost when a machine goes down.

        With `log.flush=os` that needs the page caches of the other replicas: each of them has all
        again if it has not gone down since every in-sync set was whole. A machine that has just
        gone down, or has not yet left the in-sync sets, is still in them.
        """
        if machine.config.log_flush != "os":
            return True
        are_whole = self._are_all_registered() and all(
            len(partition.isr) == len(partition.replicas)
            for topic in self.image().topics.values()
            for partition in topic.partitions
        )
        if are_whole and all(map(self._has_everything, self.went_down)):
            self.went_down.clear()
        others = self.went_down | {node for node, _ in self.damaged()}
        if others - {machine.node_id}:
            return False
        self.went_down.add(machine.node_id)
        return True

    def _has_everything(self, node_id: int) -> bool:
        """Return True if a machine is up, and has what the leaders of its replicas have shown."""
        machine = self.machines[node_id]
        if machine.core is None or machine.is_taken or not machine.is_up:
            return False
        for name, topic in self.image().topics.items():
            for index, partition in enumerate(topic.partitions):
                leader = self.machines.get(partition.leader)
                if node_id not in partition.replicas or leader is None or leader.core is None:
                    continue
                where = TopicPartition(name, index)
                mine = machine.core.partitions.find(where)
                led = leader.core.partitions.find(where)
                if led and (mine is None or mine.log_end_offset < led.high_watermark):
                    return False
        return True

    def may_damage(self, machine: Machine, where: TopicPartition) -> bool:
        """Return True if all other replicas of a partition are in sync and whole."""
        image = self.image().partition(*where)
        if image is None or image.leader == -1 or len(image.isr) < len(image.replicas):
            return False
        if any(node != machine.node_id for node, there in self.damaged() if there == where):
            return False
        return self.may_lose_power(machine)

    def damage(self, machine: Machine, where: TopicPartition, path: str, position: int) -> None:
        """Flip bits in a file of one replica."""
        self.trace("damage", machine.node_id, path, position)
        is_there = machine.disk.damage(path, position)
        self._damage[machine.node_id, where] = is_there

    def lose(self, machine: Machine, where: TopicPartition) -> None:
        """Take the directory of one replica from the disk of a broker that is down."""
        path = f"{DIRECTORY}/{where}"
        self.trace("lose", machine.node_id, path)
        machine.disk.lose(path)

        topic_id = self.image().topics[where.topic].topic_id

        def is_lost() -> bool:
            topic = self.image().topic_by_id(topic_id)
            if topic is None:
                return False
            is_in_sync = machine.node_id in topic.partitions[where.partition].isr
            return not (is_in_sync and machine.disk.has(path))

        self._damage[machine.node_id, where] = is_lost

    def damaged(self) -> list[tuple[int, TopicPartition]]:
        """Return the broker and the partition of each replica that is still damaged."""
        for (node, where), is_there in list(self._damage.items()):
            if not is_there():
                self.reached("damage is gone")
                del self._damage[node, where]
        return list(self._damage)

    async def all_registered(self) -> None:
        """Wait until every broker has registered: topics need all of them."""
        while not self._are_all_registered():  # noqa: ASYNC110 (a broker may go down meanwhile)
            await trio.sleep(0.05)

    def _are_all_registered(self) -> bool:
        are_up = all(machine.is_up for machine in self.machines.values())
        return are_up and len(self.image().brokers) == len(self.machines)

    def leave_cut(self, sender: Machine, receiver: Machine) -> None:
        """Cut a link between two brokers in one direction, and let no heal end that."""
        link = sender.host.name, receiver.host.name
        self.net.left.add(link)
        self.net.cut(*link, one_way=True)

    def is_left_cut(self, one: int, other: int) -> bool:
        """Return True if a cut between two brokers is left, in either direction."""
        names = {self.machines[node].host.name for node in (one, other)}
        return any(set(link) == names for link in self.net.left)

    def has_left_cut(self, node: int) -> bool:
        """Return True if a cut is left at one of a broker's links."""
        return any(self.machines[node].host.name in link for link in self.net.left)

    def end_left_cuts(self) -> None:
        self.net.left.clear()
        self.net.heal()

    async def heal(self) -> None:
        """End all faults but those that are left, and wait until every other broker serves."""
        self.net.heal()
        for machine in self.machines.values():
            machine.disk.capacity_bytes = None
            machine.stall_probability = 0.0
            machine.clock.skew_ms = 0
            machine.resume()
        for machine in self.machines.values():
            while not (machine.is_up or machine.is_left):  # noqa: ASYNC110 (it may fail before)
                await trio.sleep(0.05)

    # clients

    def client_hosts(self) -> list[str]:
        """Return the machines of the clients that have connected to a broker."""
        brokers = {machine.host.name for machine in self.machines.values()}
        return [name for name in self.net.hosts if name not in brokers]

    def client_options(self, name: str = "client") -> dict[str, Any]:
        """Return the options with which our client connects in this world."""
        return {
            "connect": self.net.host(name).connect,
            "first_connect_ms": None,  # brokers may be down for long before the first answer
            "wall_ms": SimClock().wall_ms,
            "rng": Random(self.rngs["load"].getrandbits(64)),
        }

    def producer(
        self, name: str = "client", *, bootstrap: str | None = None, **options: Any
    ) -> Producer:
        return Producer(bootstrap or self.bootstrap, **self.client_options(name), **options)

    def consumer(
        self, name: str = "client", *, bootstrap: str | None = None, **options: Any
    ) -> Consumer:
        given = {**self.client_options(name), "offload": inline, **options}
        return Consumer(bootstrap or self.bootstrap, **given)

    def group(self, name: str, **options: Any) -> TransactionGroup:
        return TransactionGroup(self.bootstrap, name, **self.client_options(name), **options)

    def admin(self, name: str = "client", **options: Any) -> Admin:
        return Admin(self.bootstrap, **self.client_options(name), **options)

    # looking inside

    def image(self) -> ClusterImage:
        """Return the image of everything in the metadata store."""
        if self.is_alone:
            core = self.machines[1].core
            assert core is not None, "the broker is down"
            return core.cluster.image
        revision = self.store.keys.revision
        if self._image is None or self._image.revision != revision:
            builder = ImageBuilder()
            for key, stored in self.store.keys.values.items():
                builder.put(key, stored)
            self._image = builder.image(None, revision)
        return self._image

    def leader_of(self, topic: str, index: int) -> int:
        partition = self.image().partition(topic, index)
        assert partition is not None
        return partition.leader

    def check_replicas(self, topic: str, index: int) -> None:
        """Check that all replicas have the same bytes in their first segment."""
        path = f"/data/{topic}-{index}/00000000000000000000.log"
        contents = [machine.disk.bytes_of(path) for machine in self.machines.values()]
        assert all(content == contents[0] for content in contents), [len(c) for c in contents]
