"""Logs of a leader and of its followers, and random histories to fill them with."""

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Final
from uuid import UUID

from odradek.broker.storage.aborted import AbortedEntry
from odradek.broker.storage.config import LogConfig
from odradek.broker.storage.damage import Rules
from odradek.broker.storage.files import OpenFiles
from odradek.broker.storage.leader_epochs import EpochStart
from odradek.broker.storage.log import Log
from odradek.broker.storage.marking import NewMarker
from odradek.broker.storage.producers import Producers
from odradek.protocol.batch import iter_batches, read_header
from tests.broker.storage.samples import batch
from tests.broker.storage.stories import by_id
from tests.fakes.clock import START_MS
from tests.fakes.disk import FakeDisk

DIRECTORY: Final = "/data/departures-0"
CONFIG: Final = LogConfig(segment_bytes=700, index_interval_bytes=150)
PRODUCERS: Final = (1, 2, 3)
IDEMPOTENT: Final = 4


async def open_log(disk: FakeDisk, config: LogConfig = CONFIG, *, same_boot: bool = False) -> Log:
    """Open the log of a replica in a new process."""
    if not disk.exists("/data"):
        disk.mkdir("/data")
        await disk.fsync_dir("/")
    log, _ = await Log.open(
        OpenFiles(disk),
        DIRECTORY,
        topic_id=UUID(int=7),
        config=config,
        now_ms=START_MS,
        rules=Rules(same_boot=same_boot),
    )
    await disk.fsync_dir("/data")  # as `Partitions` does when all logs are open
    return log


@dataclass
class Leader:
    """The log of a leader, filled by producers with sequences and transactions of their own."""

    log: Log
    epoch: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    now_ms: int = START_MS

    def send(self, producer_id: int = -1, count: int = 1) -> None:
        """Append a batch. A producer in `PRODUCERS` sends it in a transaction."""
        sequence = self.sequences.get(producer_id, 0)
        made = batch(
            *[f"{self.log.log_end_offset}+{number}" for number in range(count)],
            producer_id=producer_id,
            producer_epoch=self.epochs.get(producer_id, 0) if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            is_transactional=producer_id in PRODUCERS,
            timestamp_ms=self.now_ms,
        )
        self.sequences[producer_id] = sequence + count
        header = read_header(made)
        self.log.append(
            made,
            header,
            timestamp_ms=header.max_timestamp,
            leader_epoch=self.epoch,
            now_ms=self.now_ms,
        )

    def end(self, producer_id: int, *, committed: bool, is_new_epoch: bool = False) -> None:
        """Append a marker, also if no transaction is open. `is_new_epoch` is as under TV2."""
        if is_new_epoch:
            self.epochs[producer_id] = self.epochs.get(producer_id, 0) + 1
            self.sequences[producer_id] = 0
        self.log.append_markers(
            [
                NewMarker(
                    producer_id=producer_id,
                    producer_epoch=self.epochs.get(producer_id, 0),
                    coordinator_epoch=3,
                    committed=committed,
                )
            ],
            leader_epoch=self.epoch,
            now_ms=self.now_ms,
        )

    def step(self, random: Random) -> None:
        """Do one random thing."""
        self.now_ms += random.randrange(-5, 50)
        what = random.choices(("send", "plain", "end", "epoch", "roll"), (10, 3, 4, 1, 1))[0]
        if what == "send":
            self.send(random.choice((*PRODUCERS, IDEMPOTENT)), random.randrange(1, 4))
        elif what == "plain":
            self.send(count=random.randrange(1, 4))
        elif what == "end":
            self.end(
                random.choice(PRODUCERS),
                committed=random.random() < 0.5,
                is_new_epoch=random.random() < 0.5,
            )
        elif what == "epoch":
            self.epoch += random.randrange(1, 3)
        elif self.log.active.size_bytes:
            self.log.roll()


async def contents(log: Log) -> list[bytes]:
    """Return every batch of a log."""
    found: list[bytes] = []
    offset = log.segments[0].base_offset
    while offset < log.log_end_offset:
        data, _ = await log.reader.read(offset, 500, to_offset=log.log_end_offset, min_one=True)
        found += [bytes(view) for _, view in iter_batches(data)]
        offset = read_header(found[-1]).next_offset
    return found


async def send(batches: list[bytes], follower: Log, random: Random) -> None:
    """Append a leader's batches, in random portions, and now and then a portion a second time."""
    cuts = sorted({0, len(batches), *(random.randrange(len(batches) + 1) for _ in range(6))})
    for first, last in pairwise(cuts):
        for _ in range(random.choice((1, 1, 2))):
            follower.append_replicated(b"".join(batches[first:last]), now_ms=START_MS)


@dataclass(frozen=True)
class Facts:
    """Everything about a log that follows from its batches."""

    end: int
    batches: list[bytes]
    producers: list[tuple[object, ...]]
    open: list[int]
    aborted: list[AbortedEntry]
    epochs: list[EpochStart]
    """Those that have records."""
    stable_offsets: list[int]


async def facts_of(log: Log, high_watermark: int = 0) -> Facts:
    """Return the facts about a log. The high watermark is at least `high_watermark`."""
    aborted: list[AbortedEntry] = []
    for segment in log.segments:
        aborted += (await log.reader.load_aborted(segment)).entries
    return Facts(
        end=log.log_end_offset,
        batches=await contents(log),
        producers=by_id(log.producers),
        open=[entry.producer_id for entry in log.producers.open_transactions()],
        aborted=aborted,
        epochs=[entry for entry in log.epochs.entries if entry.start_offset < log.log_end_offset],
        stable_offsets=stable_offsets(log.producers, log.log_end_offset)[high_watermark:],
    )


def stable_offsets(producers: Producers, end: int) -> list[int]:
    """Return the last stable offset for each high watermark."""
    copied = Producers(producers.entries.values(), producers.ended)
    found: list[int] = []
    for high_watermark in range(end + 1):
        copied.high_watermark_is(high_watermark)
        first_unstable = copied.first_unstable_offset
        is_held = first_unstable is not None and first_unstable < high_watermark
        found.append(first_unstable if is_held and first_unstable is not None else high_watermark)
    return found


async def copy_of(batches: list[bytes], config: LogConfig = CONFIG) -> Log:
    """Return the log of a new follower that got these batches and no others."""
    log = await open_log(FakeDisk(), config)
    log.append_replicated(b"".join(batches), now_ms=START_MS)
    return log
