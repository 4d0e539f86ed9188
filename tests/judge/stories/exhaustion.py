"""The last epochs: 32,766 is the last that a producer gets, then the id gets a new producer id.

Each id is found at its epoch by the coordinator when it starts; 32,767 is what an older Kafka may
have left behind (KAFKA-20090). A commit of TV2 at 32,767 is left out: Kafka answers
UNKNOWN_SERVER_ERROR and leaves the transaction open, where we commit it.
"""

from odradek.protocol.state_topics import TransactionLogValue
from tests.judge.broker import Broker, Identity
from tests.judge.hurry import Hurry
from tests.judge.situations import TOPIC, begin, current, hold
from tests.judge.story import GIVING_UP, against_the_clock, in_setup, planted, variants

PRODUCER_ID = 5_000_000
TIMEOUT_MS = 300
EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT = 0, 1, 4, 5
LAST = 32_766
EPOCHS = range(LAST - 2, LAST + 2)


def at(epoch: int, *, status: int = EMPTY, version: int = 0) -> TransactionLogValue:
    return TransactionLogValue(
        producer_id=PRODUCER_ID + epoch,
        producer_epoch=epoch,
        transaction_timeout_ms=60_000,
        transaction_status=status,
        transaction_partitions=None if status == EMPTY else (),
        transaction_last_update_timestamp_ms=2**41,
        transaction_start_timestamp_ms=-1 if status == EMPTY else 2**41,
        client_transaction_version=version,
    )


def who_has(epoch: int) -> Identity:
    return Identity(PRODUCER_ID + epoch, epoch)


PLANTED = {f"e{epoch}": at(epoch) for epoch in EPOCHS}
ENDED = {f"e{epoch}": at(epoch, status=COMPLETE_COMMIT, version=2) for epoch in EPOCHS}


@planted(**PLANTED)
@variants(version=range(6))
def story_new_instances(broker: Broker, version: int) -> None:
    for epoch in EPOCHS:
        name = f"e{epoch}"
        broker.init(name, version=version)
        broker.init(name, version=version)
        broker.init(name, version=version)


@planted(**PLANTED)
@variants(version=range(3, 6), planted_epoch=EPOCHS)
def story_continued(broker: Broker, version: int, planted_epoch: int) -> None:
    """The same instance asks for the next epoch, loses the answer, and asks again."""
    name, producer = f"e{planted_epoch}", who_has(planted_epoch)
    for _ in range(3):
        following = broker.init(name, version=version, expected=producer)
        broker.init(name, version=version, expected=producer)
        if following.producer_id < 0:
            return
        producer = following


@planted(**ENDED)
@variants(planted_epoch=EPOCHS, commit=(True, False))
def story_tv2_ends(broker: Broker, planted_epoch: int, commit: bool) -> None:
    """Transactions, one after the other, over the last epoch; each answer is lost once."""
    if commit and planted_epoch > LAST:
        return
    broker.topic(TOPIC)
    name, producer = f"e{planted_epoch}", who_has(planted_epoch)
    for _ in range(4):
        begin(broker, name, producer, 2)
        following = broker.end(name, producer, commit=commit, version=5)
        broker.end(name, producer, commit=commit, version=5)
        broker.end(name, producer, commit=not commit, version=5)
        broker.produce(name, producer, TOPIC, version=12)
        if following == producer:
            return
        producer = following


@planted(**ENDED)
@variants(planted_epoch=EPOCHS, commit=(True, False))
def story_tv1_ends(broker: Broker, planted_epoch: int, commit: bool) -> None:
    broker.topic(TOPIC)
    name, producer = f"e{planted_epoch}", who_has(planted_epoch)
    for _ in range(2):
        begin(broker, name, producer, 1)
        broker.end(name, producer, commit=commit)
        broker.end(name, producer, commit=commit)
    broker.end(name, producer, commit=commit, version=5)
    broker.init(name, expected=producer)


@planted(**ENDED)
@variants(planted_epoch=EPOCHS)
def story_empty_aborts(broker: Broker, planted_epoch: int) -> None:
    """An abort of TV2 without a transaction spends an epoch, too."""
    name, producer = f"e{planted_epoch}", who_has(planted_epoch)
    for _ in range(4):
        following = broker.end(name, producer, commit=False, version=5)
        broker.end(name, producer, commit=False, version=5)
        if following == producer:
            return
        producer = following


@planted(**PLANTED)
@variants(planted_epoch=EPOCHS, generation=(1, 2), version=(0, 4))
def story_fenced_while_open(
    broker: Broker, planted_epoch: int, generation: int, version: int
) -> None:
    """A new instance comes while a transaction of the last epoch is open."""
    broker.topic(TOPIC)
    name, producer = f"e{planted_epoch}", who_has(planted_epoch)
    begin(broker, name, producer, generation)
    after = broker.init(name, version=version)
    for zombie_version in (3, 5):
        broker.end(name, producer, commit=True, version=zombie_version)
        broker.end(name, producer, commit=False, version=zombie_version)
    broker.produce(name, producer, TOPIC, version=11)
    if after.producer_id >= 0:
        begin(broker, name, after, generation)
        broker.end(name, after, commit=True, version=5 if generation == 2 else 3)


@planted(**PLANTED)
@variants(planted_epoch=EPOCHS, generation=(1, 2))
def story_continued_while_open(broker: Broker, planted_epoch: int, generation: int) -> None:
    broker.topic(TOPIC)
    name, producer = f"e{planted_epoch}", who_has(planted_epoch)
    begin(broker, name, producer, generation)
    broker.init(name, expected=producer)
    broker.init(name, expected=producer)


@against_the_clock
@planted(**PLANTED)
@variants(planted_epoch=EPOCHS, generation=(1, 2), version=(3, 5))
def story_timed_out(broker: Broker, planted_epoch: int, generation: int, version: int) -> None:
    """The time-out of a transaction spends the epoch that is left, and the zombie comes back."""
    broker.topic(TOPIC)
    name = f"e{planted_epoch}"
    producer = broker.init(name, timeout_ms=TIMEOUT_MS)
    if producer.producer_id < 0:
        return
    hurry = Hurry(TIMEOUT_MS)
    begin(broker, name, producer, generation)
    hurry.over()
    broker.wait_for(name, "CompleteAbort")
    broker.produce(name, producer, TOPIC, version=11)
    told = broker.end(name, producer, commit=False, version=version)
    broker.end(name, told, commit=True, version=version)
    broker.init(name, expected=producer)
    broker.init(name)


@in_setup(GIVING_UP)
@planted(**PLANTED)
@variants(commit=(True, False))
def story_held_while_a_new_producer_id_waits(broker: Broker, commit: bool) -> None:
    """Prepare* at the last epoch: the next producer id is promised and not yet current."""
    broker.topic(TOPIC)
    name, producer = f"e{LAST}", who_has(LAST)
    begin(broker, name, producer, 2)
    hold(broker, producer)
    told = broker.end(name, producer, commit=commit, version=5, settle=False)
    for related in (producer, told, current(broker, name)):
        broker.end(name, related, commit=commit, version=5, settle=False)
        broker.end(name, related, commit=commit, version=3, settle=False)
        broker.add(name, related, [(TOPIC, 0)])
        broker.produce(name, related, TOPIC, version=12)
        broker.init(name, expected=related)
