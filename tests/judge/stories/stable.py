"""What readers see of open, committed and aborted transactions: last stable offset, high watermark,
the list of aborted transactions, look-ups by time, offsets of groups."""

import itertools

from odradek.protocol.apis.group import DELETE_GROUPS, DeleteGroupsRequest
from odradek.protocol.apis.group_offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.judge.asking import (
    Batch,
    Marker,
    mark,
    now_ms,
    offset_at,
    read,
    reading_meanwhile,
    send,
)
from tests.judge.broker import Broker, Identity
from tests.judge.story import variants

T0 = ("t", 0)
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, NO_TIMESTAMP = -4, -5, -6
MINUTE_MS = 60_000


class Interleaved:
    """Three transactions and a plain producer in one partition, each batch of two records.

    `step` does one thing: "a", "b", "c" a batch of a transaction, "p" a plain batch, capitals the
    end of a transaction: "Ac" commits, "Aa" aborts.
    """

    def __init__(self, broker: Broker, *, version: int = 12) -> None:
        self._broker = broker
        self._version = version
        self._who: dict[str, Identity] = {name: broker.init(name) for name in "abc"}
        self._next = dict.fromkeys("abc", 0)

    def step(self, what: str) -> None:
        name = what[0].lower()
        if what == "p":
            send(self._broker, None, Batch(T0, count=2), version=9)
        elif what == name:
            batch = Batch(T0, self._who[name], self._next[name], 2, is_transactional=True)
            send(self._broker, name, batch, version=self._version)
            self._next[name] += 2
        else:
            commit = what[1] == "c"
            self._who[name] = self._broker.end(name, self._who[name], commit=commit, version=5)
            self._next[name] = 0

    def steps(self, words: str) -> None:
        for what in words.split():
            self.step(what)


@variants(
    words=(
        "a b Ac Bc",
        "a b Bc Ac",
        "a b Aa Bc",
        "a b Ba Aa",
        "p a p b p Aa p Ba p",
        "a b c Ba Ac Ca",
        "a a b Aa b Ba p c Ca",
        "a Aa a Ac a Aa a Aa",
        "a b a b c c Ba c Aa Cc a b",
    )
)
def story_interleaved(broker: Broker, words: str) -> None:
    """Everything that can be seen, after every step."""
    broker.topic("t")
    world = Interleaved(broker)
    for what in words.split():
        world.step(what)
        broker.end_offsets("t")
        read(broker, "t")
        read(broker, "t", committed=False)


@variants(version=(4, 7, 11, 12, 13, 16, 18))
def story_every_range(broker: Broker, version: int) -> None:
    """From every offset of a log with aborted transactions, read a batch and all of it."""
    broker.topic("t")
    world = Interleaved(broker)
    world.steps("a b p a Aa b c Ba c p Ca a Ac p b c")
    for offset in range(-1, 30):
        read(broker, "t", 0, offset, version=version)
        if version in (4, 12):
            read(broker, "t", 0, offset, version=version, max_bytes=1)


@variants(committed=(True, False))
def story_every_size(broker: Broker, committed: bool) -> None:
    """`max_bytes` cuts the answer, and the list of aborted transactions goes with what is in it."""
    broker.topic("t")
    world = Interleaved(broker)
    world.steps("a b p a Aa b c Ba c p Ca a Ac p b c")
    for offset, max_bytes in itertools.product((0, 3, 8), range(0, 1200, 75)):
        read(broker, "t", 0, offset, committed=committed, max_bytes=max_bytes)


@variants(version=(1, 2, 4, 6, 7, 8, 10))
def story_list_offsets(broker: Broker, version: int) -> None:
    """By every special timestamp, for both kinds of readers, with a transaction open."""
    broker.topic("t")
    world = Interleaved(broker)
    special = (LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, NO_TIMESTAMP)
    for words in ("", "p", "a", "b", "Aa", "p", "Bc"):
        world.steps(words)
        for timestamp, committed in itertools.product(special, (False, True)):
            if version >= 2 or not committed:
                offset_at(broker, "t", timestamp=timestamp, committed=committed, version=version)


@variants(commit=(True, False))
def story_by_time(broker: Broker, commit: bool) -> None:
    """KAFKA-5522: a read_committed look-up ends at the last stable offset."""
    broker.topic("t")
    producer = broker.init("x")
    start_ms = now_ms() - 10 * MINUTE_MS

    def at(minute: int) -> Batch:
        return Batch(T0, timestamp_ms=start_ms + minute * MINUTE_MS)

    def look() -> None:
        for minute, committed in itertools.product((-1, 0, 1, 2, 3, 4, 5), (False, True)):
            offset_at(
                broker,
                "t",
                timestamp=start_ms + minute * MINUTE_MS,
                committed=committed,
                says=f"minute {minute}",
            )

    look()
    send(broker, None, at(0), version=9)
    send(broker, None, at(2), version=9)
    batch = Batch(T0, producer, is_transactional=True, timestamp_ms=start_ms + 3 * MINUTE_MS)
    send(broker, "x", batch, version=12)
    send(broker, None, at(4), version=9)
    send(broker, None, at(1), version=9)
    look()
    broker.end("x", producer, commit=commit, version=5)
    look()


@variants(commit=(True, False), version=(3, 5))
def story_a_transaction_without_records(broker: Broker, commit: bool, version: int) -> None:
    """A partition that was added and never written to gets its marker all the same."""
    broker.topic("t", 2)
    producer = broker.init("x")
    broker.add("x", producer, [T0])
    broker.end_offsets("t")
    producer = broker.end("x", producer, commit=commit, version=version)
    for committed in (True, False):
        read(broker, "t", committed=committed)
    for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, 0):
        offset_at(broker, "t", timestamp=timestamp)
    broker.end("x", producer, commit=commit, version=version)
    broker.add("x", producer, [T0])
    broker.end("x", producer, commit=False, version=version)


def story_the_order_of_aborted_transactions(broker: Broker) -> None:
    """Three that end in another order than they began in."""
    broker.topic("t")
    world = Interleaved(broker)
    for words in ("a b c Ba", "Ca", "Aa"):
        world.steps(words)
        broker.look("t")


def story_only_markers_are_left_for_a_reader(broker: Broker) -> None:
    """A fetch from behind the last record of an aborted transaction does not list it."""
    broker.topic("t")
    world = Interleaved(broker)
    world.steps("a Aa a Aa b Bc c Ca")
    for offset in range(14):
        read(broker, "t", 0, offset)
        read(broker, "t", 0, offset, max_bytes=1)


@variants(offset=(-1, 5, 6, 2**62))
def story_out_of_range(broker: Broker, offset: int) -> None:
    """There are 5 offsets, the last stable one is 2."""
    broker.topic("t")
    send(broker, None, Batch(T0, count=2), version=9)
    producer = broker.init("x")
    send(broker, "x", Batch(T0, producer, count=3, is_transactional=True), version=12)
    for committed in (True, False):
        read(broker, "t", 0, offset, committed=committed)
        read(broker, "t", 0, 3, committed=committed)


@variants(commit=(True, False), version=(4, 12))
def story_a_long_poll_across_the_end(broker: Broker, commit: bool, version: int) -> None:
    """KAFKA-5376: a reader that waits at the last stable offset is woken by the marker, and its
    answer has both the records and whether they are aborted."""
    broker.topic("t")
    producer = broker.init("x")
    send(broker, "x", Batch(T0, producer, count=2, is_transactional=True), version=12)
    answer = reading_meanwhile(broker, "t", 0, 0, version=version)
    broker.end("x", producer, commit=commit, version=5)
    answer()


def story_a_marker_moves_readers_of_one_partition_only(broker: Broker) -> None:
    """An administrator ends the transaction in one partition; the other still waits."""
    broker.topic("t", 2)
    producer = broker.init("x")
    for partition in range(2):
        batch = Batch(("t", partition), producer, is_transactional=True)
        send(broker, "x", batch, version=12)
    mark(broker, Marker(producer, [T0], False, -1))
    for partition in range(2):
        broker.end_offsets("t", partition)
        read(broker, "t", partition)
    broker.end("x", producer, commit=False, version=5)
    for partition in range(2):
        read(broker, "t", partition)


# Offsets of groups


def begin_with_offsets(broker: Broker, version: int) -> Identity:
    producer = broker.init("x")
    if version < 5:
        broker.add_offsets("x", producer, "g")
    broker.commit_offsets("x", producer, "g", {T0: 70}, version=version)
    return producer


def plain_commit(broker: Broker, offset: int) -> None:
    """Send OffsetCommit without a member id."""
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topic = OffsetCommitRequestTopic(name=broker.names.on_wire("t"), partitions=(partition,))
    request = OffsetCommitRequest(group_id=broker.wire_group("g"), member_id="", topics=(topic,))
    broker.ask(f"plain commit t-0={offset}", OFFSET_COMMIT, 8, request)


def delete_group(broker: Broker) -> None:
    request = DeleteGroupsRequest(groups_names=(broker.names.on_wire("g"),))
    broker.ask("delete g", DELETE_GROUPS, 2, request)


def both(broker: Broker) -> None:
    """Both ways to ask for the group's offset."""
    for stable in (False, True):
        broker.committed("g", [T0, ("t", 1)], stable=stable)


@variants(commit=(True, False), version=(2, 3, 5))
def story_pending_offsets(broker: Broker, commit: bool, version: int) -> None:
    broker.topic("t", 2)
    broker.find("g", key_type=0)
    both(broker)
    producer = begin_with_offsets(broker, version)
    both(broker)
    broker.commit_offsets("x", producer, "g", {T0: 71, ("t", 1): 5}, version=version)
    both(broker)
    producer = broker.end("x", producer, commit=commit, version=5 if version == 5 else 3)
    both(broker)


@variants(commit=(True, False), order=("plain first", "plain between", "plain last"))
def story_plain_commits_beside_pending_ones(broker: Broker, commit: bool, order: str) -> None:
    """The plain commit of a later offset in the log stays."""
    broker.topic("t", 2)
    broker.find("g", key_type=0)
    if order == "plain first":
        plain_commit(broker, 80)
    producer = begin_with_offsets(broker, 3)
    if order == "plain between":
        plain_commit(broker, 80)
        both(broker)
    broker.end("x", producer, commit=commit)
    if order == "plain last":
        plain_commit(broker, 80)
    both(broker)


@variants(first=("x", "y"), commit_x=(True, False), commit_y=(True, False))
def story_two_transactions_commit_for_one_partition(
    broker: Broker, first: str, commit_x: bool, commit_y: bool
) -> None:
    """Of two that commit, the one that wrote last counts, whichever ends first."""
    broker.topic("t", 2)
    broker.find("g", key_type=0)
    producer = {name: broker.init(name) for name in "xy"}
    for name, offset in (("x", 7), ("y", 8)):
        broker.add_offsets(name, producer[name], "g")
        broker.commit_offsets(name, producer[name], "g", {T0: offset})
    both(broker)
    for name in sorted("xy", key=lambda name: name != first):
        broker.end(name, producer[name], commit=commit_x if name == "x" else commit_y)
        both(broker)


@variants(commit=(True, False))
def story_a_group_is_deleted_with_offsets_pending(broker: Broker, commit: bool) -> None:
    broker.topic("t", 2)
    broker.find("g", key_type=0)
    producer = begin_with_offsets(broker, 3)
    delete_group(broker)
    both(broker)
    broker.end("x", producer, commit=commit)
    both(broker)


@variants(commit=(True, False))
def story_a_group_is_deleted_with_stored_and_pending_offsets(broker: Broker, commit: bool) -> None:
    broker.topic("t", 2)
    broker.find("g", key_type=0)
    plain_commit(broker, 60)
    producer = begin_with_offsets(broker, 3)
    delete_group(broker)
    both(broker)
    plain_commit(broker, 61)
    broker.end("x", producer, commit=commit)
    both(broker)


@variants(commit=(True, False))
def story_the_topic_is_not_there(broker: Broker, commit: bool) -> None:
    """Offsets of topics and partitions that do not exist."""
    broker.topic("t")
    broker.find("g", key_type=0)
    producer = broker.init("x")
    broker.add_offsets("x", producer, "g")
    broker.commit_offsets("x", producer, "g", {T0: 1, ("no", 0): 2})
    broker.committed("g", [T0, ("no", 0)], stable=True)
    broker.end("x", producer, commit=commit)
    broker.committed("g", [T0, ("no", 0)], stable=True)
