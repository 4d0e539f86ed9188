"""Transaction markers as a partition's leader judges them: epochs, repeats, unknown producers.

They are sent as an administrator would, so that every epoch can be had. A story that lets a
coordinator epoch of its own in keeps the coordinator out afterwards; those end no transaction.
"""

from odradek.protocol.state_topics import CONSUMER_OFFSETS_TOPIC, state_partition
from tests.judge.asking import Batch, Marker, mark, producers, read, send
from tests.judge.broker import Broker, Identity
from tests.judge.names import NOBODY as NOBODYS_ID
from tests.judge.reading import STATE_PARTITIONS
from tests.judge.story import variants

T0 = ("t", 0)
T1 = ("t", 1)
GENERATIONS = ((1, 0), (2, 0), (2, 1), (2, 2))
"""Version of WriteTxnMarkers, and the transaction version that is said in it."""


def known_producer(broker: Broker, epoch: int = 3, where: tuple[str, int] = T0) -> Identity:
    """An idempotent producer with one batch of this epoch in the partition."""
    producer = Identity(broker.init(None).producer_id, epoch)
    send(broker, None, Batch(where, producer), version=12)
    return producer


def open_transaction(broker: Broker, *, epoch: int = 0, where: tuple[str, int] = T0) -> Identity:
    """A transaction of TV1 of "x" with one batch in a partition."""
    producer = broker.init("x")
    while producer.epoch < epoch:
        producer = broker.init("x")
    broker.add("x", producer, [where])
    send(broker, "x", Batch(where, producer, is_transactional=True), version=11)
    return producer


@variants(generation=GENERATIONS)
def story_coordinator_epochs(broker: Broker, generation: tuple[int, int]) -> None:
    version, transaction_version = generation
    broker.topic("t")
    producer = known_producer(broker)
    for step, coordinator_epoch in enumerate((-1, 5, 4, 5, -1, -2, 0, 6, 5, 2**31 - 1, 6)):
        epoch = producer.epoch + 1 + step  # that is always in order, in every generation
        marker = Marker(
            Identity(producer.producer_id, epoch),
            [T0],
            commit=step % 2 == 0,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        mark(broker, marker, version=version)
    producers(broker, "t")


@variants(generation=GENERATIONS)
def story_epochs_with_nothing_open(broker: Broker, generation: tuple[int, int]) -> None:
    version, transaction_version = generation
    broker.topic("t")
    producer = known_producer(broker)
    for epoch in (2, 3, 3, 4, 3, 4, 10, 9, 10, 32767, 32766, 32767):
        marker = Marker(
            Identity(producer.producer_id, epoch), [T0], transaction_version=transaction_version
        )
        mark(broker, marker, version=version)
    producers(broker, "t")
    send(broker, None, Batch(T0, producer, 1), version=12)
    if transaction_version == 2:
        del broker.topics_made["t"]  # the logs differ by the repeats


@variants(generation=GENERATIONS, epoch=(0, 1, 2, 6))
def story_epochs_with_a_transaction_open(
    broker: Broker, generation: tuple[int, int], epoch: int
) -> None:
    """The transaction has epoch 1. Twice, and what the partition then holds."""
    version, transaction_version = generation
    broker.topic("t")
    producer = open_transaction(broker, epoch=1)
    marker = Marker(
        Identity(producer.producer_id, epoch),
        [T0],
        commit=False,
        coordinator_epoch=-1,
        transaction_version=transaction_version,
    )
    for _ in range(2):
        mark(broker, marker, version=version)
        producers(broker, "t")
        broker.end_offsets("t")
        send(broker, "x", Batch(T0, producer, 1, is_transactional=True), version=11)
    if epoch <= 1:  # a coordinator that is overtaken is another story
        broker.end("x", producer, commit=True)
    if epoch > 1 and transaction_version == 2:
        del broker.topics_made["t"]


@variants(first=(True, False), second=(True, False), generation=GENERATIONS)
def story_a_repeat(broker: Broker, first: bool, second: bool, generation: tuple[int, int]) -> None:
    """KAFKA-19999: acknowledged, even if it says otherwise; what was decided stays."""
    version, transaction_version = generation
    broker.topic("t")
    producer = open_transaction(broker).newer()
    for commit in (first, second, second):
        mark(broker, Marker(producer, [T0], commit, -1, transaction_version), version=version)
    producers(broker, "t")
    broker.end_offsets("t")
    del broker.topics_made["t"]


@variants(generation=GENERATIONS)
def story_a_producer_that_the_partition_does_not_know(
    broker: Broker, generation: tuple[int, int]
) -> None:
    version, transaction_version = generation
    broker.topic("t", 2)
    for epoch in (0, 0, 1):
        producer = Identity(NOBODYS_ID, epoch)
        marker = Marker(producer, [T0], transaction_version=transaction_version)
        mark(broker, marker, version=version)
    producers(broker, "t")
    send(broker, None, Batch(T1, Identity(NOBODYS_ID, 1), 9), version=12)
    mark(broker, Marker(Identity(NOBODYS_ID, 2), [T1]), version=version)
    send(broker, None, Batch(T1, Identity(NOBODYS_ID, 2), 10), version=12)
    send(broker, None, Batch(T1, Identity(NOBODYS_ID, 2), 0), version=12)
    if transaction_version == 2:
        del broker.topics_made["t"]


@variants(version=(1, 2), producer_id=(0, -1, -5, 2**63 - 1), epoch=(0, -1, -32768, 32767))
def story_any_numbers(broker: Broker, version: int, producer_id: int, epoch: int) -> None:
    broker.topic("t")
    mark(broker, Marker(Identity(producer_id, epoch), [T0]), version=version)
    mark(broker, Marker(Identity(producer_id, epoch), [T0], False, -1, 2), version=version)
    if producer_id < 0:
        del broker.topics_made["t"]  # Kafka writes what it will never find again


@variants(transaction_version=(-128, -1, 3, 127))
def story_generations_that_are_not_there(broker: Broker, transaction_version: int) -> None:
    broker.topic("t")
    producer = open_transaction(broker)
    for epoch in (0, 1):
        marker = Marker(producer.newer(epoch), [T0], False, -1, transaction_version)
        mark(broker, marker, version=2)
        producers(broker, "t")


@variants(version=(1, 2))
def story_partitions_that_are_not_there(broker: Broker, version: int) -> None:
    broker.topic("t", 2)
    producer = open_transaction(broker)
    for wanted in (
        [("no", 0)],
        [("t", 9)],
        [("t", -1)],
        [T0, ("t", 9), ("no", 0), T1],
        [("__no", 0)],
        [("", 0)],
        [],
    ):
        mark(broker, Marker(producer, wanted, False, -1), version=version)
    mark(broker, version=version)
    broker.end_offsets("t")
    broker.end("x", producer, commit=True)


@variants(version=(1, 2))
def story_several_in_one_request(broker: Broker, version: int) -> None:
    broker.topic("t", 3)
    first, second = known_producer(broker), known_producer(broker, where=T1)
    mark(broker, Marker(first, [T0, T1]), Marker(second, [T1, ("t", 2)], False), version=version)
    mark(broker, Marker(first.older(), [T0]), Marker(second, [T1]), version=version)
    mark(broker, Marker(first.newer(), [T0]), Marker(first.newer(2), [T1]), version=version)
    for partition in range(3):
        producers(broker, "t", partition)


@variants(version=(1, 2))
def story_the_same_partition_twice(broker: Broker, version: int) -> None:
    broker.topic("t")
    producer = known_producer(broker)
    mark(broker, Marker(producer, [T0]), Marker(producer, [T0]), version=version)
    mark(broker, Marker(producer.newer(), [T0]), Marker(producer, [T0], False), version=version)


@variants(version=(1, 2))
def story_thousands_of_partitions(broker: Broker, version: int) -> None:
    """10,000 that are not there and one that is."""
    broker.topic("t")
    producer = known_producer(broker)
    wanted = [("no", index) for index in range(10_000)]
    mark(broker, Marker(producer, [*wanted, T0]), version=version, is_counted=True)


@variants(commit=(True, False), version=(3, 12))
def story_an_administrator_aborts(broker: Broker, commit: bool, version: int) -> None:
    """Abort with coordinator epoch -1, as `kafka-transactions.sh abort` does, and go on."""
    broker.topic("t", 2)
    is_new = version >= 12
    producer = broker.init("x")
    broker.add("x", producer, [T0, T1])
    for where in (T0, T1):
        send(broker, "x", Batch(where, producer, is_transactional=True), version=version)
    mark(broker, Marker(producer, [T0], False, -1))
    broker.end_offsets("t")
    send(broker, "x", Batch(T0, producer, 1, is_transactional=True), version=version)
    broker.end_offsets("t")
    producer = broker.end("x", producer, commit=commit, version=5 if is_new else 3)
    producers(broker, "t")
    broker.add("x", producer, [T0])
    send(
        broker, "x", Batch(T0, producer, 0 if is_new else 2, is_transactional=True), version=version
    )
    mark(broker, Marker(producer, [T0], False, -1))  # not the first coordinator here any more
    broker.end("x", producer, commit=True, version=5 if is_new else 3)
    for partition in range(2):
        read(broker, "t", partition)


@variants(commit=(True, False), version=(1, 2))
def story_a_groups_partition(broker: Broker, commit: bool, version: int) -> None:
    """A marker from any client settles the offsets that are pending there."""
    broker.topic("t")
    producer = broker.init("x")
    broker.find("g", key_type=0)
    broker.add_offsets("x", producer, "g")
    broker.commit_offsets("x", producer, "g", {T0: 7})
    broker.committed("g", [T0], stable=True)
    index = state_partition(broker.names.on_wire("g"), STATE_PARTITIONS)
    where = (CONSUMER_OFFSETS_TOPIC, index)
    nowhere = (CONSUMER_OFFSETS_TOPIC, 99)
    mark(broker, Marker(producer.newer(5), [nowhere], commit, -1), version=version)
    broker.committed("g", [T0], stable=True)
    mark(broker, Marker(producer, [where], commit, -1), version=version, has_shared=True)
    broker.committed("g", [T0], stable=True)
    broker.commit_offsets("x", producer, "g", {T0: 8})
    broker.committed("g", [T0], stable=True)
    broker.end("x", producer, commit=not commit)
    broker.committed("g", [T0], stable=True)


@variants(version=(1, 2))
def story_of_a_producer_without_offsets_in_the_group(broker: Broker, version: int) -> None:
    broker.topic("t")
    broker.find("g", key_type=0)
    producer = Identity(broker.init(None).producer_id, 0)
    index = state_partition(broker.names.on_wire("g"), STATE_PARTITIONS)
    mark(
        broker,
        Marker(producer, [(CONSUMER_OFFSETS_TOPIC, index)]),
        version=version,
        has_shared=True,
    )
    broker.committed("g", [T0], stable=True)
