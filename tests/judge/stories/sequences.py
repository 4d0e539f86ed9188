"""Sequences and epochs of idempotent and transactional producers, as a partition checks them."""

from tests.judge.asking import NOBODY, Batch, producers, send, send_at_once
from tests.judge.broker import Broker, Identity
from tests.judge.names import NOBODY as NOBODYS_ID
from tests.judge.story import variants

T0 = ("t", 0)
T1 = ("t", 1)
LAST_SEQUENCE = 2**31 - 1
TV1_VERSIONS = (3, 9, 11)
TV2_VERSIONS = (12, 13)


def plain(producer: Identity, sequence: int, count: int = 1, where: tuple[str, int] = T0) -> Batch:
    return Batch(where, producer, sequence, count)


def txn(producer: Identity, sequence: int, count: int = 1, where: tuple[str, int] = T0) -> Batch:
    return Batch(where, producer, sequence, count, is_transactional=True)


# Idempotent producers


@variants(version=(3, 5, 7, 8, 9, 10, 11, 12, 13))
def story_window_of_five(broker: Broker, version: int) -> None:
    """Seven batches, all sent again: the first two are out of order, five are recognised."""
    broker.topic("t")
    producer = broker.init(None)
    for _ in range(2):
        for number in range(7):
            send(broker, None, plain(producer, 2 * number, 2), version=version)
    for sequence, count in ((12, 1), (13, 1), (12, 3), (11, 2), (10, 4)):  # other bounds
        send(broker, None, plain(producer, sequence, count), version=version)
    send(broker, None, plain(producer, 14), version=version)


@variants(version=(3, 9, 12))
def story_gap(broker: Broker, version: int) -> None:
    broker.topic("t")
    producer = broker.init(None)
    for sequence in (0, 2, 1, 5, 2, 1, 0, 3):
        send(broker, None, plain(producer, sequence), version=version)


@variants(version=(3, 9, 13))
def story_epochs(broker: Broker, version: int) -> None:
    broker.topic("t")
    producer = broker.init(None)
    send(broker, None, plain(producer, 0, 3), version=version)
    send(broker, None, plain(producer.newer(), 3), version=version)
    send(broker, None, plain(producer.newer(), 1), version=version)
    send(broker, None, plain(producer.newer(), 0), version=version)
    send(broker, None, plain(producer, 3), version=version)
    send(broker, None, plain(producer, 0, 3), version=version)  # a repeat, of an epoch that is over
    send(broker, None, plain(producer.newer(), 0), version=version)
    send(broker, None, plain(producer.newer(100), 7), version=version)
    send(broker, None, plain(producer.newer(100), 0), version=version)
    send(broker, None, plain(producer.newer(), 1), version=version)
    last = Identity(producer.producer_id, 32767)
    send(broker, None, plain(last, 0), version=version)
    send(broker, None, plain(last, 1), version=version)
    producers(broker, "t")


def story_unknown_producers_begin_anywhere(broker: Broker) -> None:
    broker.topic("t", 2)
    producer = broker.init(None)
    send(broker, None, plain(producer, 100), version=12)
    send(broker, None, plain(producer, 100), version=12)
    send(broker, None, plain(producer, 99), version=12)
    send(broker, None, plain(producer, 0), version=12)
    send(broker, None, plain(producer, 101), version=12)
    nobody = Identity(NOBODYS_ID, 3)
    send(broker, None, plain(nobody, 7, where=T1), version=12)
    send(broker, None, plain(nobody, 8, where=T1), version=12)
    send(broker, None, plain(nobody.older(), 9, where=T1), version=12)
    producers(broker, "t", 0)
    producers(broker, "t", 1)


def story_the_last_sequence_is_followed_by_zero(broker: Broker) -> None:
    broker.topic("t", 3)
    producer = broker.init(None)
    for sequence, count in ((LAST_SEQUENCE - 1, 2), (0, 1), (LAST_SEQUENCE - 1, 2), (0, 1), (1, 1)):
        send(broker, None, plain(producer, sequence, count), version=12)
    for sequence, count in ((LAST_SEQUENCE, 1), (LAST_SEQUENCE, 1), (1, 1), (0, 3), (0, 3), (3, 1)):
        send(broker, None, plain(producer, sequence, count, T1), version=12)
    for partition in range(2):
        producers(broker, "t", partition)


def story_a_batch_across_the_last_sequence(broker: Broker) -> None:
    broker.topic("t")
    producer = broker.init(None)
    for sequence, count in ((LAST_SEQUENCE - 1, 5), (LAST_SEQUENCE - 1, 5), (2, 1), (4, 1), (3, 2)):
        send(broker, None, plain(producer, sequence, count), version=12)
    send(broker, None, plain(producer, 3, 2), version=12)
    send(broker, None, plain(producer, LAST_SEQUENCE - 1, 4), version=12)
    producers(broker, "t")


@variants(acks=(1, 2))
def story_acks(broker: Broker, acks: int) -> None:
    broker.topic("t")
    producer = broker.init(None)
    for sequence in (0, 0, 5, 1):
        send(broker, None, plain(producer, sequence), version=9, acks=acks)


@variants(version=(3, 9, 13))
def story_one_bad_partition_of_three(broker: Broker, version: int) -> None:
    """Each partition is answered for itself."""
    broker.topic("t", 3)
    producer = broker.init(None)
    send(broker, None, *(plain(producer, 0, where=("t", i)) for i in range(3)), version=version)
    batches = (plain(producer, 1), plain(producer, 5, where=T1), plain(producer, 0, where=("t", 2)))
    send(broker, None, *batches, version=version)
    unknown = (
        plain(producer, 2),
        plain(producer, 0, where=("t", 9)),
        plain(producer, 0, where=("no", 0)),
    )
    send(broker, None, *unknown, version=version)


@variants(version=(3, 12))
def story_several_idempotent_producers_in_one_request(broker: Broker, version: int) -> None:
    broker.topic("t", 2)
    first, second = broker.init(None), broker.init(None)
    for sequence in (0, 1, 1, 4):
        batches = (plain(first, sequence), plain(second, sequence, where=T1))
        send(broker, None, *batches, version=version)


def story_a_duplicate_in_append_time(broker: Broker) -> None:
    """Where the broker's time counts it is what a repeat is answered with."""
    broker.topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    producer = broker.init(None)
    for sequence in (0, 0, 1, 0):
        send(broker, None, plain(producer, sequence), version=9)


# Transactional producers


@variants(version=TV1_VERSIONS)
def story_transactions_of_one_epoch(broker: Broker, version: int) -> None:
    """TV1: the same epoch, and sequences go on, from one transaction to the next."""
    broker.topic("t")
    producer = broker.init("x")
    broker.add("x", producer, [T0])
    for _ in range(2):
        for number in range(7):
            send(broker, "x", txn(producer, 2 * number, 2), version=version)
    send(broker, "x", txn(producer, 15), version=version)
    send(broker, "x", txn(producer, 14), version=version)
    producers(broker, "t")
    broker.end("x", producer, commit=True)
    producers(broker, "t")
    send(broker, "x", txn(producer, 15), version=version)  # not added
    broker.add("x", producer, [T0])
    send(broker, "x", txn(producer, 16), version=version)
    send(broker, "x", txn(producer, 15), version=version)
    send(broker, "x", txn(producer, 0), version=version)
    send(broker, "x", txn(producer, 14), version=version)
    broker.end("x", producer, commit=False)
    send(broker, "x", txn(producer, 14), version=version)  # a repeat that is late
    broker.add("x", producer, [T0])
    send(broker, "x", txn(producer, 15), version=version)  # what was aborted is remembered, too
    broker.end("x", producer, commit=True)
    producers(broker, "t")


@variants(version=TV2_VERSIONS)
def story_transactions_of_new_epochs(broker: Broker, version: int) -> None:
    """TV2: each transaction has a new epoch and begins at 0."""
    broker.topic("t")
    producer = broker.init("x")
    for _ in range(2):
        for number in range(7):
            send(broker, "x", txn(producer, 2 * number, 2), version=version)
    send(broker, "x", txn(producer, 15), version=version)
    send(broker, "x", txn(producer, 14), version=version)
    producers(broker, "t")
    second = broker.end("x", producer, commit=True, version=5)
    producers(broker, "t")
    send(broker, "x", txn(producer, 14), version=version)
    send(broker, "x", txn(producer, 15), version=version)
    send(broker, "x", txn(second, 15), version=version)
    send(broker, "x", txn(second, 0), version=version)
    send(broker, "x", txn(producer, 14), version=version)
    third = broker.end("x", second, commit=False, version=5)
    send(broker, "x", txn(second, 0), version=version)
    send(broker, "x", txn(third, 0), version=version)
    broker.end("x", third, commit=True, version=5)
    producers(broker, "t")


@variants(version=(3, 10, 11, 12))
def story_plain_batches_of_a_transactional_producer(broker: Broker, version: int) -> None:
    """Plain batches are appended while no transaction is open, else INVALID_TXN_STATE."""
    broker.topic("t", 2)
    producer = broker.init("x")
    send(broker, None, plain(producer, 0), version=version)
    send(broker, "x", plain(producer, 1), version=version)
    broker.add("x", producer, [T0])
    send(broker, "x", plain(producer, 2), version=version)  # added, but open nowhere yet
    send(broker, "x", txn(producer, 3), version=version)
    send(broker, None, plain(producer, 4), version=version)
    send(broker, "x", plain(producer, 4), version=version)
    send(broker, "x", plain(producer, 0, where=T1), version=version)  # open in the other partition
    send(broker, "x", txn(producer, 4), version=version)
    broker.end("x", producer, commit=True)
    send(broker, None, plain(producer, 5), version=version)
    producers(broker, "t")


@variants(version=(3, 9, 11, 12, 13))
def story_no_transactional_id(broker: Broker, version: int) -> None:
    broker.topic("t", 2)
    producer = broker.init("x")
    broker.add("x", producer, [T0])
    send(broker, None, txn(producer, 0), version=version)
    send(broker, None, txn(producer, 0), plain(producer, 0, where=T1), version=version)
    send(broker, None, txn(producer, 0), plain(producer, 0, where=("no", 0)), version=version)
    broker.end("x", producer, commit=False)


@variants(version=(3, 9, 11, 12, 13))
def story_mixed_requests(broker: Broker, version: int) -> None:
    """A transaction's batch beside others of other kinds (KAFKA-14916: one producer at a time)."""
    broker.topic("t", 4)
    producer, other, free = broker.init("x"), broker.init("y"), broker.init(None)
    broker.add("x", producer, [T0, T1])
    broker.add("y", other, [T1, ("t", 2)])
    send(broker, "x", txn(producer, 0), plain(free, 0, where=T1), version=version)
    send(broker, "x", txn(producer, 1), Batch(T1), version=version)
    send(broker, "x", txn(producer, 2), plain(producer, 0, where=T1), version=version)
    send(broker, "x", txn(producer, 3), txn(other, 0, where=("t", 2)), version=version)
    send(broker, "x", txn(producer, 3), txn(producer.newer(), 0, where=("t", 3)), version=version)
    producers(broker, "t", 0)
    broker.end("y", other, commit=True)
    broker.end("x", producer, commit=True)


@variants(version=(3, 9, 11, 12, 13))
def story_two_unknown_producers_in_one_request(broker: Broker, version: int) -> None:
    broker.topic("t", 3)
    first, second = broker.init("x"), broker.init("y")
    broker.add("x", first, [T0])
    broker.add("y", second, [T1])
    both = (txn(first, 0), txn(second, 0, where=T1))
    send(broker, "x", *both, version=version)
    send(broker, "x", *both, plain(first, 0, where=("t", 2)), version=version)
    send(broker, "x", *both, plain(first, 0, where=("no", 2)), version=version)
    broker.end("y", second, commit=True)
    broker.end("x", first, commit=True)


@variants(version=(3, 9, 11, 12, 13))
def story_unknown_partitions_beside_a_good_one(broker: Broker, version: int) -> None:
    broker.topic("t")
    producer = broker.init("x")
    broker.add("x", producer, [T0])
    send(broker, "x", txn(producer, 0), txn(producer, 0, where=("no", 0)), version=version)
    send(broker, "x", txn(producer, 1), txn(producer, 0, where=("t", 7)), version=version)
    send(broker, "x", txn(producer, 0, where=("no", 0)), version=version)
    broker.end("x", producer, commit=True)


def story_tv2_begins_at_zero(broker: Broker) -> None:
    """Nothing is known of the producer: a gap at its beginning is a gap nevertheless (KIP-890)."""
    broker.topic("t")
    producer = broker.init("x")
    for sequence in (2, 1, 0, 1, 2):
        send(broker, "x", txn(producer, sequence), version=12)
    second = broker.end("x", producer, commit=True, version=5)
    for sequence in (5, 0):
        send(broker, "x", txn(second, sequence), version=12)
    broker.end("x", second, commit=False, version=5)


def story_tv1_begins_anywhere(broker: Broker) -> None:
    broker.topic("t")
    producer = broker.init("x")
    broker.add("x", producer, [T0])
    for sequence in (5, 6, 5, 4):
        send(broker, "x", txn(producer, sequence), version=11)
    broker.end("x", producer, commit=True)


def story_generations_mixed(broker: Broker) -> None:
    """One producer that speaks now TV1, now TV2."""
    broker.topic("t", 2)
    producer = broker.init("x")
    broker.add("x", producer, [T0])
    send(broker, "x", txn(producer, 0), version=12)
    send(broker, "x", txn(producer, 0, where=T1), version=12)
    broker.end("x", producer, commit=True, version=3)
    send(broker, "x", txn(producer, 1), version=10)
    send(broker, "x", txn(producer, 1), version=11)
    send(broker, "x", txn(producer, 1), version=12)
    second = broker.end("x", producer, commit=True, version=5)
    broker.add("x", second, [T0])
    send(broker, "x", txn(second, 0), version=11)
    broker.end("x", second, commit=True, version=4)
    producers(broker, "t")


@variants(version=(3, 11, 12))
def story_a_zombie_of_an_older_epoch(broker: Broker, version: int) -> None:
    """A new instance has taken over: what the first still sends is refused and changes nothing."""
    broker.topic("t", 2)
    first = broker.init("x")
    broker.add("x", first, [T0])
    send(broker, "x", txn(first, 0), version=version)
    second = broker.init("x")
    send(broker, "x", txn(first, 1), version=version)
    send(broker, "x", txn(first, 0), version=version)
    send(broker, "x", txn(first, 0, where=T1), version=version)
    send(broker, None, plain(first, 1), version=version)
    broker.add("x", second, [T0])
    send(broker, "x", txn(second, 0), version=version)
    send(broker, "x", txn(first, 1), version=version)
    broker.end("x", second, commit=True)
    producers(broker, "t")


@variants(version=(3, 11, 12))
def story_an_epoch_from_the_future(broker: Broker, version: int) -> None:
    broker.topic("t")
    producer = broker.init("x")
    broker.add("x", producer, [T0])
    send(broker, "x", txn(producer, 0), version=version)
    send(broker, "x", txn(producer.newer(), 1), version=version)
    broker.end("x", producer, commit=True)
    send(broker, "x", txn(producer.newer(), 0), version=version)


@variants(version=(3, 11, 12))
def story_a_refused_epoch_does_not_block_its_producer(broker: Broker, version: int) -> None:
    broker.topic("t")
    producer = broker.init("x")
    broker.add("x", producer, [T0])
    send(broker, "x", txn(producer, 0), version=version)
    send(broker, "x", txn(producer.newer(), 0), version=version)
    send(broker, "x", txn(producer, 1), version=version)
    broker.end("x", producer, commit=True)
    del broker.topics_made["t"]  # the logs differ by what was refused


@variants(version=(3, 11))
def story_a_late_repeat_does_not_block_the_next_transaction(broker: Broker, version: int) -> None:
    broker.topic("t")
    producer = broker.init("x")
    broker.add("x", producer, [T0])
    send(broker, "x", txn(producer, 0), version=version)
    broker.end("x", producer, commit=True)
    send(broker, "x", txn(producer, 0), version=version)
    broker.add("x", producer, [T0])
    send(broker, "x", txn(producer, 1), version=version)
    broker.end("x", producer, commit=True)
    del broker.topics_made["t"]


@variants(version=(9, 12))
def story_the_same_partition_twice_in_one_request(broker: Broker, version: int) -> None:
    """Two batches at once for a partition: Kafka loses the first and does not say so."""
    broker.topic("t")
    send(broker, None, Batch(T0, NOBODY), Batch(T0, NOBODY, count=2), version=version)
    del broker.topics_made["t"]


@variants(version=(9, 11, 12))
def story_acks_of_a_transaction(broker: Broker, version: int) -> None:
    broker.topic("t")
    producer = broker.init("x")
    broker.add("x", producer, [T0])
    for sequence, acks in ((0, 1), (1, 2), (1, 1), (2, -1)):
        send(broker, "x", txn(producer, sequence), version=version, acks=acks)
    broker.end("x", producer, commit=True)
    broker.end_offsets("t")


@variants(version=(3, 9, 13))
def story_several_in_flight(broker: Broker, version: int) -> None:
    """All are sent before the first is answered; those behind a gap are refused, too."""
    broker.topic("t")
    producer = broker.init(None)
    send_at_once(broker, None, [plain(producer, n) for n in range(5)], version=version)
    send_at_once(broker, None, [plain(producer, n) for n in range(5)], version=version)
    send_at_once(broker, None, [plain(producer, n) for n in (5, 7, 6, 8, 7, 8)], version=version)


@variants(version=(9, 12))
def story_a_transaction_in_flight(broker: Broker, version: int) -> None:
    """From the first batch on; the next transaction while the markers of the last one are due."""
    broker.topic("t")
    producer = broker.init("x")
    broker.add("x", producer, [T0])
    send_at_once(broker, "x", [txn(producer, n) for n in range(5)], version=version)
    producer = broker.end("x", producer, commit=True, version=5 if version >= 12 else 3)
    broker.add("x", producer, [T0])
    first = 0 if version >= 12 else 5
    send_at_once(broker, "x", [txn(producer, first + n) for n in range(5)], version=version)
    broker.end("x", producer, commit=True)
