"""What is due while a coordinator still reads its partition: it is done once, and in log order."""

from dataclasses import replace
from typing import Final

import trio

from odradek.broker.txn.store import encode
from odradek.broker.txn.transaction import State, TransactionMetadata
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.protocol.record import encode_batch
from tests.broker.txn.world import World

MANY: Final = 6_000
"""So many ids take longer to read than one append takes to be committed."""


def many_ids(name: str, transaction: TransactionMetadata) -> bytearray:
    """Return a batch with one id, and with many others behind it that nothing is due for."""
    other = TransactionMetadata(
        producer_id=6, producer_epoch=0, timeout_ms=1000, state=State.EMPTY, updated_ms=10**15
    )
    records = [encode(name, transaction)]
    records += [encode(f"id{n}", replace(other, producer_id=100 + n)) for n in range(MANY)]
    return encode_batch(records)


async def test_what_is_overdue_while_the_log_is_read_is_aborted_once(fresh: World) -> None:
    """The abort was committed before the load ended, and not applied: it was decided once more."""
    late = TransactionMetadata(
        producer_id=5,
        producer_epoch=3,
        timeout_ms=1000,
        state=State.ONGOING,
        partitions=frozenset([TopicIdPartition("t", 0, b"\1" * 16)]),
        started_ms=-(10**7),
        updated_ms=-(10**7),
        transaction_version=2,
    )
    fresh.log.replace_batches([many_ids("late", late)])
    await fresh.start_unloaded()
    before = fresh.log.append_count
    await fresh.coordinator.load(0)
    await trio.sleep(1)
    assert fresh.coordinator.describe("late").transaction.state is State.COMPLETE_ABORT
    await fresh.init(transactional_id="another")
    assert fresh.log.append_count - before == 3  # the abort, its end, and the other id
    fresh.stop()


async def test_an_id_that_expires_while_the_log_is_read_is_gone(fresh: World) -> None:
    """It was said to be removed, served a client, and was removed under it by the next commit."""
    old = TransactionMetadata(
        producer_id=6, producer_epoch=0, timeout_ms=1000, state=State.EMPTY, updated_ms=-(10**13)
    )
    fresh.log.replace_batches([many_ids("old", old)])
    await fresh.start_unloaded()
    await fresh.coordinator.load(0)
    producer = await fresh.init(transactional_id="old", timeout_ms=1000)
    await fresh.add(producer, TopicIdPartition("t", 0, b"\1" * 16), transactional_id="old")
    assert producer.producer_id != 6
    fresh.stop()
