"""Known bugs of other logs: the name of each test says what went wrong.

The numbers are those of the bug reports. A bug of a single rule is tested with that rule
(`producers`, `recovery`, `crashes`, `reading`). The tests here need several parts.
"""

from collections.abc import Iterable

import pytest

from odradek.broker.storage.aborted import AbortedTxn
from odradek.broker.storage.config import LogConfig
from odradek.protocol.batch import HEADER_BYTES, BatchHeader, iter_batches, set_base_offset
from odradek.protocol.control import read_marker
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.broker.storage.samples import PARTITION_DIRECTORY, Client, Machine, batch, read_all

SMALL_SEGMENTS = LogConfig(segment_bytes=400)


@pytest.mark.parametrize("torn", ["gone", "cut off", "not its data"])
async def test_the_torn_batch_of_an_open_transaction_leaves_nothing_open(torn: str) -> None:
    """KAFKA-12153: the first unstable offset lay beyond the log end, and readers never reached it.

    Here the torn batch is not part of the log, whatever part of it is on disk.
    """
    machine = Machine()
    partition = await machine.start()
    partition.leader().append_from_client(batch("before"))
    await partition.flush()
    whole = Client(partition, is_transactional=True).make("torn off")
    set_base_offset(whole, 1, 0)
    left = {
        "gone": b"",
        "cut off": bytes(whole[:-1]),
        "not its data": bytes(whole[:HEADER_BYTES]) + bytes(len(whole) - HEADER_BYTES),
    }
    machine.disk.crash()
    machine.disk.open(f"{PARTITION_DIRECTORY}/{0:020}.log").append(left[torn])
    partition = await machine.start()
    assert partition.log_end_offset == 1
    assert partition.open_transactions() == []
    assert partition.last_stable_offset == partition.high_watermark == 1
    partition.leader().append_from_client(batch("after"))
    await partition.flush()
    assert partition.last_stable_offset == 2


async def test_sequences_go_on_after_the_records_before_them_were_deleted() -> None:
    """KAFKA-7298: a producer without newer records was unknown, or out of order."""
    machine = Machine()
    partition = await machine.start()
    client = Client(partition)
    sent = client.make("one", "two")
    again = memoryview(bytearray(sent))
    partition.leader().append_from_client(sent)
    await partition.flush()
    await partition.maintenance.delete_before(2)
    assert partition.leader().append_from_client(again).is_duplicate
    assert client.send("three").base_offset == 2
    client.make("never sent")
    with pytest.raises(KafkaError) as caught:
        client.send("behind it")
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("transaction_version", [0, 2])
async def test_a_sequence_used_anew_after_an_abort_is_no_repeat_of_the_aborted_batch(
    transaction_version: int,
) -> None:
    """Redpanda #5026: the batch was taken for a duplicate, acknowledged, and lost.

    A client whose responses were lost gets a new epoch after the abort: from the marker itself
    (KIP-890), or from InitProducerId (KIP-360).
    """
    partition = await Machine().start()
    client = Client(partition, is_transactional=True)
    client.send("its answer is lost")
    client.end(committed=False, transaction_version=transaction_version)
    if transaction_version == 0:
        client.epoch, client.sequence = client.epoch + 1, 0
    appended = client.send("its answer is lost")
    assert not appended.is_duplicate
    assert appended.base_offset == 2
    client.end(committed=True, transaction_version=transaction_version)
    await partition.flush()
    read = await partition.leader().read(0, 10_000, read_committed=True)
    assert read.aborted == (AbortedTxn(1, 0),)
    assert partition.last_stable_offset == 4


async def test_a_transaction_that_is_open_at_a_checkpoint_is_open_after_it() -> None:
    """Redpanda #8566, #30003: the snapshot lacked the transaction, or its later batches."""
    machine = Machine()
    partition = await machine.start()
    early, late = (Client(partition, producer_id=n, is_transactional=True) for n in (1, 2))
    early.send("before the checkpoint")
    await partition.checkpoint()
    late.send("after it")
    early.send("after it")
    await partition.flush()
    for _ in range(2):
        partition = await machine.restart_after_kill()
        early.partition = late.partition = partition
        assert [entry.producer_id for entry in partition.open_transactions()] == [1, 2]
        assert partition.last_stable_offset == 0
        await partition.checkpoint()
    early.end(committed=False)
    late.end(committed=True)
    await partition.flush()
    partition = await machine.restart_after_kill()
    assert partition.last_stable_offset == partition.high_watermark == 5
    read = await partition.leader().read(0, 10_000, read_committed=True)
    assert read.aborted == (AbortedTxn(1, 0),)


async def test_records_and_the_aborted_transactions_among_them_agree_at_every_seam() -> None:
    """Redpanda #7819: records and the list of aborted transactions came from two sources.

    The transactions reach over several segments. A reader stops at every offset, before and after
    a restart.
    """
    machine = Machine(config=SMALL_SEGMENTS)
    partition = await machine.start()
    clients = [Client(partition, producer_id=n, is_transactional=True) for n in (1, 2, 3)]
    for round_number in range(6):
        for client in clients:
            client.send(f"round {round_number}", "x" * 40)
        if round_number % 2:
            clients[0].end(committed=False)
    clients[1].end(committed=False)
    clients[2].end(committed=True)
    await partition.flush()
    assert len(partition.log.segments) > 4
    for restarted in (False, True):
        if restarted:
            partition = await machine.restart_after_kill()
        last_offsets = _aborted_in(await read_all(partition))
        assert len(last_offsets) == 4
        for offset in range(partition.last_stable_offset):
            read = await partition.leader().read(offset, 150, read_committed=True)
            headers = [header for header, _ in iter_batches(read.records)]
            wanted = tuple(
                transaction
                for transaction, marker_offset in last_offsets.items()
                if transaction.first_offset < headers[-1].next_offset
                and marker_offset >= headers[0].base_offset
            )
            missing = set(wanted) - set(read.aborted)
            assert not missing, (offset, restarted)


def _aborted_in(batches: Iterable[tuple[BatchHeader, bytes]]) -> dict[AbortedTxn, int]:
    """Return the marker's offset of each aborted transaction, from the records."""
    first: dict[int, int] = {}
    ended: dict[AbortedTxn, int] = {}
    for header, data in batches:
        if header.is_control:
            begun = first.pop(header.producer_id)
            if not read_marker(memoryview(data)).committed:
                ended[AbortedTxn(header.producer_id, begun)] = header.base_offset
        else:
            first.setdefault(header.producer_id, header.base_offset)
    return ended


async def test_no_read_shows_more_than_what_is_applied() -> None:
    """Redpanda #10671, #28360, #29796: the last stable offset came from an index ahead of its log.

    After a start it counted as known before it was.
    """
    machine = Machine()
    partition = await machine.start()
    client = Client(partition, is_transactional=True)
    for number in range(20):
        if number % 3 == 0:
            partition.leader().append_from_client(batch("plain"))
        client.send("one")
        if number % 2:
            client.end(committed=bool(number % 4 == 1))
        if number % 5 == 0:
            partition = client.partition = await machine.restart_after_kill()
        open_from = [entry.first_offset for entry in partition.open_transactions()]
        stable = partition.last_stable_offset
        assert stable <= min([partition.high_watermark, *open_from])
        if stable > 0:
            read = await partition.leader().read(0, 1 << 20, read_committed=True)
            headers = [header for header, _ in iter_batches(read.records)]
            assert headers[-1].next_offset <= stable
        await partition.flush()
