"""One machine of a simulation: its disk, its wall clock, and the broker that runs on it."""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from random import Random
from typing import Final

import trio

from odradek.broker.api.context import Core
from odradek.broker.broker import Address, CannotServe, Started, serve
from odradek.broker.cluster.store_embedded import DamagedStore, EmbeddedStore
from odradek.broker.config.addresses import Listener
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.environment.env import Env, MetaStore, inline
from odradek.broker.storage.reserve import ReservedDisk
from odradek.protocol.errors import KafkaError
from tests.fakes.disk import FakeDisk, PowerOff
from tests.fakes.meta_store import FakeMetaStore
from tests.simulation.net import Host, MachineDown
from tests.simulation.scheduling import PROCESS, Process
from tests.simulation.users import listener_of_users, sasl_of_users

LOGGER = logging.getLogger(__name__)
CLIENT_PORT: Final = 9092
PEER_PORT: Final = 9093
START_MS: Final = 1_700_000_000_000
DIRECTORY: Final = "/data"
FSYNC_SECONDS: Final = 0.001
STALL_SECONDS: Final = 0.4
JOURNAL_FILE_BYTES: Final = 128 * 1024
"""The size of a file of the journal: they take turns in a short run."""

BrokenOff = (OSError, CannotServe, DamagedStore, KafkaError)
"""What a broker may end with when its disk or the metadata store fails it."""


class SimClock:
    """The wall clock of one machine."""

    def __init__(self) -> None:
        self.skew_ms = 0

    def wall_ms(self) -> int:
        return START_MS + self.skew_ms + round(trio.current_time() * 1000)


class Machine:
    """One machine with a broker, which is started, killed and started again.

    `meta` is the metadata store of a cluster; without one the broker has its own on its disk.
    """

    def __init__(
        self,
        *,
        node_id: int,
        host: Host,
        meta: FakeMetaStore | None,
        config: BrokerConfig,
        rng: Random,
        disk_rng: Random,
        reached: Callable[[str], None],
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.meta = meta
        self.config = config
        self.clock = SimClock()
        self.disk = FakeDisk()
        self.disk.wall_ms = self.clock.wall_ms
        self.disk.mkdir(DIRECTORY)
        self.disk.make_durable()
        self.disk.delay_s = self._disk_delay
        self.stall_probability = 0.0
        self.process = Process(host.name)
        self.core: Core | None = None
        """The parts of the running broker; None while there is none."""
        self.is_up = False
        self.is_running = False
        self.is_taken = False
        """True while a fault has the broker down, or is taking it down."""
        self.is_left = False
        """True if it stays dead when all faults end."""
        self.lost_power = False
        self.failure: BaseException | None = None
        """Why the broker ended by itself."""
        self._rng = rng
        self._disk_rng = disk_rng
        self._reached = reached
        self._is_killed = False
        self._scope = trio.CancelScope()
        self._stop = trio.Event()
        self._down = trio.Event()

    def _disk_delay(self, call: str) -> float:
        if call not in ("fsync", "fsync_dir"):
            return 0.0
        seconds = self._disk_rng.expovariate(1 / FSYNC_SECONDS)
        if self._disk_rng.random() < self.stall_probability:
            self._reached("an fsync stalls")
            seconds += self._disk_rng.expovariate(1 / STALL_SECONDS)
        return seconds

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the broker until it stops, fails or is killed. Started when it serves."""
        assert not self.is_running, self.node_id
        PROCESS.set(self.process)
        self.is_running, self._is_killed, self.failure = True, False, None
        self._stop, self._down, self._scope = trio.Event(), trio.Event(), trio.CancelScope()
        try:
            with self._scope:
                await self._serve(task_status.started)
        except* (PowerOff, MachineDown):
            assert self._is_killed, self.node_id
        except* BrokenOff as group:
            if not self._is_killed:
                LOGGER.warning("broker %d has ended: %s", self.node_id, _first(group))
                self.failure = group
        finally:
            self.core = None
            self.is_up = self.is_running = False
            self._down.set()

    async def _serve(self, is_up: Callable[[], None]) -> None:
        def started(what: Started) -> None:
            LOGGER.info("broker %d is up: %s", self.node_id, what.recovered)
            self.is_up = True
            is_up()

        def made(core: Core) -> None:
            self.core = core
            if (journal := core.partitions.journal) is not None:
                journal.file_bytes = JOURNAL_FILE_BYTES

        disk = ReservedDisk(self.disk, DIRECTORY, self.config.log_reserve_bytes)
        disk.prepare()
        with ExitStack() as stack:
            meta: MetaStore | None = self.meta
            if meta is None:
                own = await EmbeddedStore.open(disk, DIRECTORY)
                stack.callback(own.close)
                meta = own
            env = Env(
                clock=self.clock,
                net=self.host,
                disk=disk,
                meta=meta,
                rng=Random(self._rng.getrandbits(64)),
                offload=inline,
                reached=self._reached,
            )
            await serve(
                env,
                self.config,
                directory=DIRECTORY,
                address=self._address(),
                started=started,
                stop=self._stop,
                made=made,
            )

    def _address(self) -> Address:
        """Return the plain listener, and the one of users if the settings have it."""
        plain = Listener(host=self.host.name, port=CLIENT_PORT)
        users = listener_of_users(self.config, self.host.name)
        return Address(
            listeners=(plain, *users),
            peer_port=None if self.meta is None else PEER_PORT,
            sasl={each.name: sasl_of_users(self.config) for each in users},
        )

    # faults

    def kill(self, *, is_heard: bool = True) -> None:
        """Kill the broker as kill -9 does: its files stay as they are, its peers get a reset.

        Not `is_heard`: they get none, as if its network had gone before.
        """
        LOGGER.info("broker %d is killed", self.node_id)
        self._end(is_heard=is_heard)

    def lose_power(self) -> None:
        """Cut the power: what is not on the disk will be lost, and peers hear nothing."""
        LOGGER.info("broker %d loses power", self.node_id)
        self.lost_power = True
        self._end(is_heard=False)

    def _end(self, *, is_heard: bool) -> None:
        """Take disk and network away first, so that no `finally` block does anything with them."""
        self._is_killed = True
        self.disk.power_off()
        self.host.down(is_heard=is_heard)
        if self.meta is not None:
            self.meta.cut()
        self.process.thaw()
        self._scope.cancel()

    def pause(self) -> None:
        """Stop the process as SIGSTOP does."""
        self.process.freeze()

    def resume(self) -> None:
        self.process.thaw()

    async def stop(self) -> None:
        """Stop the broker as SIGTERM does."""
        self._stop.set()
        await self._down.wait()
        self.disk.kill()
        self.host.down(is_heard=True)
        self.host.up()

    async def ended(self) -> None:
        """Wait until nothing of a killed broker runs any more; then the machine may start again."""
        await self._down.wait()

    def restore(self) -> None:
        """Make the machine ready to start again after it was killed or lost its power."""
        if self.lost_power:
            self.disk.crash(self._disk_rng)
        else:
            self.disk.kill()
        self.lost_power = False
        self.host.up()
        if self.meta is not None:
            self.meta.heal()


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
