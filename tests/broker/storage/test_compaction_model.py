"""Readers see the model, whatever is written, ended, compacted and reopened in whatever order.

The model is a list of the written records and the outcomes of the transactions. The newest
committed values and the producers follow from it without the log.
"""

import trio

from odradek.broker.partitions.partition import Partition
from odradek.broker.storage.producer_entry import WINDOW
from odradek.protocol.batch import Codec
from tests.broker.storage.keyed import (
    CONFIG,
    KeyedClient,
    Pair,
    compact,
    consume,
    newest,
    stored,
)
from tests.broker.storage.samples import Machine
from tests.drawing import given, st

PLAIN, FIRST, SECOND = 1, 2, 3
KEYS = ("a", "b", "c", "a key that is longer than forty bytes, so that it is known by its hash")
KEY = st.sampled_from(KEYS)
PAIRS = st.lists(st.tuples(KEY, st.sampled_from(("x", "yy", None))), min_size=1, max_size=4)
SEND = st.tuples(st.just("send"), st.sampled_from((PLAIN, FIRST, SECOND)), PAIRS)
END = st.tuples(st.just("end"), st.sampled_from((FIRST, SECOND)), st.booleans())
COMPACT = st.tuples(st.just("compact"), st.sampled_from((0, 400, 100_000)), st.booleans())
REOPEN = st.tuples(st.just("reopen"), st.sampled_from(("clean", "power", "no checkpoint")))
WAIT = st.tuples(st.just("wait"), st.integers(1, 3))
STEPS = st.lists(
    st.one_of(SEND, SEND, SEND, END, COMPACT, COMPACT, REOPEN, WAIT), min_size=12, max_size=50
)


class World:
    """A partition, its producers and the model."""

    def __init__(self, machine: Machine, partition: Partition, codec: Codec) -> None:
        self.machine = machine
        self.partition = partition
        self.written: list[tuple[int, int, list[Pair]]] = []
        """Producer, base offset, records."""
        self.began: dict[int, int] = {}
        self.ended: list[tuple[int, int, int, bool]] = []
        """Producer, first offset, marker's offset, and True if it was committed."""
        self.clients = {
            PLAIN: KeyedClient(partition, producer_id=PLAIN, codec=codec),
            FIRST: KeyedClient(partition, producer_id=FIRST, is_transactional=True),
            SECOND: KeyedClient(partition, producer_id=SECOND, is_transactional=True, codec=codec),
        }

    def send(self, producer: int, pairs: list[Pair]) -> None:
        base_offset = self.clients[producer].send(*pairs)
        self.written.append((producer, base_offset, pairs))
        if producer != PLAIN:
            self.began.setdefault(producer, base_offset)

    def end(self, producer: int, committed: bool) -> None:
        """End a transaction, also one without records (KAFKA-10702)."""
        marker = self.partition.log_end_offset
        self.clients[producer].end(committed=committed)
        if producer in self.began:
            self.ended.append((producer, self.began.pop(producer), marker, committed))

    async def compact(self, map_bytes: int, from_the_start: bool) -> None:
        if from_the_start:
            self.partition.log.state.clean_offset = 0
        await compact(self.partition, map_bytes=map_bytes)

    async def reopen(self, how: str) -> None:
        await self.partition.flush()
        if how == "clean":
            partition = await self.machine.restart()
        elif how == "power":
            partition = await self.machine.restart_after_power_loss()
        else:
            path = self.partition.log.directory + "/checkpoint"
            self.machine.disk.kill()
            self.machine.disk.remove(path)
            partition = await self.machine.start()
        self.partition = partition
        for client in self.clients.values():
            client.partition = partition

    def wait(self, seconds: int) -> None:
        self.machine.clock.advance(1000 * seconds)

    @property
    def stable_offset(self) -> int:
        return min(self.began.values(), default=self.partition.log_end_offset)

    def expected(self) -> dict[str, tuple[int, str]]:
        values: dict[str, tuple[int, str]] = {}
        for producer, base_offset, pairs in self.written:
            aborted = any(
                who == producer and first <= base_offset < marker and not committed
                for who, first, marker, committed in self.ended
            )
            if aborted or base_offset >= self.stable_offset:
                continue
            for number, (key, value) in enumerate(pairs):
                values.pop(key, None)
                if value is not None:
                    values[key] = (base_offset + number, value)
        return values

    async def check(self) -> None:
        await self.partition.flush()
        assert self.partition.last_stable_offset == self.stable_offset
        for max_bytes in (150, 1 << 20):
            assert newest(await consume(self.partition, max_bytes=max_bytes)) == self.expected()
        offsets = [header.base_offset for header, _ in await stored(self.partition)]
        assert offsets == sorted(set(offsets))
        self._check_producers()

    def _check_producers(self) -> None:
        """Check that no epoch or sequence went back: only the next sequence is accepted."""
        for producer, client in self.clients.items():
            entry = self.partition.log.producers.entries.get(producer)
            last = [offset for who, offset, _ in self.written if who == producer]
            if entry is None:
                assert not last
                continue
            assert entry.epoch == client.epoch
            assert len(entry.batches) <= WINDOW
            assert entry.has_open_transaction == (producer in self.began)
            if client.sequence:
                assert entry.last_sequence == client.sequence - 1
                assert entry.batches[-1].base_offset == last[-1]


@given(steps=STEPS, codec=st.sampled_from((Codec.NONE, Codec.GZIP, Codec.ZSTD)))
def test_readers_see_the_newest_committed_values(
    steps: list[tuple[object, ...]], codec: Codec
) -> None:
    trio.run(play, steps, codec)


async def play(steps: list[tuple[object, ...]], codec: Codec) -> None:
    machine = Machine(config=CONFIG)
    world = World(machine, await machine.start(), codec)
    for name, *arguments in steps:
        done = getattr(world, str(name))(*arguments)
        if done is not None:
            await done
        if name in ("compact", "reopen"):
            await world.check()
    for _ in range(4):
        await world.compact(100_000, True)
        world.wait(2)
    await world.check()
    await check_what_is_left(world)
    await world.reopen("no checkpoint")
    await world.check()


async def check_what_is_left(world: World) -> None:
    """Check that after some passes nothing below the last stable offset is superfluous."""
    if world.began:
        return
    partition = world.partition
    assert partition.log.state.clean_offset == partition.log_end_offset
    left = {offset for offset, _ in world.expected().values()}
    found = await consume(partition, read_committed=False)
    assert {record.offset for record in found} == left
