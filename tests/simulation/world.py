"""Real brokers in one process: each with a disk, a network and a metadata store in memory."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import trio

from odradek.broker.broker import Address, Started, serve
from odradek.broker.cluster.image import ClusterImage
from odradek.broker.cluster.metadata import ImageBuilder
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.env import Env, inline
from odradek.client import Admin, Consumer, Producer
from tests.broker.config.configured import from_properties
from tests.fakes.disk import FakeDisk, PowerOff
from tests.fakes.meta_store import FakeMetaStore, MetaServer
from tests.simulation.net import Host, MachineDown, Net

LOGGER = logging.getLogger(__name__)
CLIENT_PORT = 9092
PEER_PORT = 9093
START_MS = 1_700_000_000_000
SMALL = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "num.partitions": "3",
}
REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.replication.factor": "3",
}


@dataclass
class SimClock:
    """The wall clock of one machine."""

    skew_ms: int = 0

    def wall_ms(self) -> int:
        return START_MS + self.skew_ms + round(trio.current_time() * 1000)


@dataclass
class Machine:
    """One machine with a broker, which is started, killed and started again."""

    node_id: int
    host: Host
    meta: FakeMetaStore
    config: BrokerConfig
    rng: Random
    disk: FakeDisk = field(default_factory=FakeDisk)
    clock: SimClock = field(default_factory=SimClock)
    is_up: bool = False
    _scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    _stop: trio.Event = field(default_factory=trio.Event)
    _down: trio.Event = field(default_factory=trio.Event)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the broker until it stops or is killed. Started when it serves."""

        def started(what: Started) -> None:
            LOGGER.info("broker %d is up: %s", self.node_id, what.recovered)
            self.is_up = True
            task_status.started()

        env = Env(
            clock=self.clock,
            net=self.host,
            disk=self.disk,
            meta=self.meta,
            rng=Random(self.rng.getrandbits(64)),
            offload=inline,
        )
        self._stop, self._down = trio.Event(), trio.Event()
        self._scope = trio.CancelScope()
        try:
            with self._scope:
                await serve(
                    env,
                    self.config,
                    directory="/data",
                    address=Address(host=self.host.name, port=CLIENT_PORT, peer_port=PEER_PORT),
                    started=started,
                    stop=self._stop,
                    directory_id=f"directory-{self.node_id}",
                )
        except* (PowerOff, MachineDown):
            pass
        finally:
            self.is_up = False
            self._down.set()

    def kill(self) -> None:
        """Kill the broker as kill -9 does: its files stay as they are, its peers get a reset."""
        LOGGER.info("broker %d is killed", self.node_id)
        self.disk.power_off()
        self.host.down(is_heard=True)
        self.meta.cut()
        self._scope.cancel()

    async def stop(self) -> None:
        """Stop the broker as SIGTERM does."""
        self._stop.set()
        await self._down.wait()
        self.disk.kill()

    async def ended(self) -> None:
        """Wait until nothing of a killed broker runs any more; then the machine may start again."""
        await self._down.wait()

    def restart_after_kill(self) -> None:
        self.disk.kill()
        self.host.up()
        self.meta.heal()

    def restart_after_power_loss(self, keep: Random | None = None) -> None:
        self.disk.crash(keep)
        self.host.up()
        self.meta.heal()


class World:
    """Brokers, their metadata store, and clients of them."""

    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        brokers: int = 3,
        seed: int = 1,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        master = Random(seed)
        self.nursery = nursery
        self.rngs = {
            name: Random(master.getrandbits(64))
            for name in ("net", "brokers", "disk", "load", "faults")
        }
        self.net = Net(self.rngs["net"], nursery)
        self.store = MetaServer()
        self.machines = {
            node_id: self._machine(node_id, brokers, properties or {})
            for node_id in range(1, brokers + 1)
        }

    def _machine(self, node_id: int, brokers: int, properties: Mapping[str, str]) -> Machine:
        given = {**SMALL, **(REPLICATED if brokers >= 3 else {}), **properties}
        return Machine(
            node_id=node_id,
            host=self.net.host(f"broker{node_id}"),
            meta=FakeMetaStore(self.store, max_operations=128),
            config=from_properties({**given, "node.id": str(node_id)}),
            rng=self.rngs["brokers"],
        )

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

    async def restart(self, node_id: int, *, power_loss: bool = False) -> None:
        """Start a killed broker again."""
        machine = self.machines[node_id]
        await machine.ended()
        if power_loss:
            machine.restart_after_power_loss(self.rngs["disk"])
        else:
            machine.restart_after_kill()
        await self.start(node_id)

    def client_options(self, name: str = "client") -> dict[str, Any]:
        """Return the options with which our client connects in this world."""
        return {
            "connect": self.net.host(name).connect,
            "wall_ms": SimClock().wall_ms,
            "rng": Random(self.rngs["load"].getrandbits(64)),
        }

    def producer(self, name: str = "client", **options: Any) -> Producer:
        return Producer(self.bootstrap, **self.client_options(name), **options)

    def consumer(self, name: str = "client", **options: Any) -> Consumer:
        return Consumer(self.bootstrap, **self.client_options(name), **options)

    def admin(self, name: str = "client") -> Admin:
        return Admin(self.bootstrap, **self.client_options(name))

    def image(self) -> ClusterImage:
        """Return the image of everything in the metadata store."""
        builder = ImageBuilder()
        for key, stored in self.store.keys.values.items():
            builder.put(key, stored)
        return builder.image(None, self.store.keys.revision)

    def leader_of(self, topic: str, index: int) -> int:
        partition = self.image().partition(topic, index)
        assert partition is not None
        return partition.leader

    async def restart_after(self, node_id: int, seconds: float) -> None:
        await trio.sleep(seconds)
        await self.restart(node_id)

    def check_replicas(self, topic: str, index: int) -> None:
        """Check that all replicas have the same bytes in their first segment."""
        path = f"/data/{topic}-{index}/00000000000000000000.log"
        contents = [machine.disk.bytes_of(path) for machine in self.machines.values()]
        assert all(content == contents[0] for content in contents), [len(c) for c in contents]
