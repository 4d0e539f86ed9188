"""What compaction must know of transactions that it sees only part of."""

from odradek.broker.storage.aborted import AbortedTransaction
from tests.broker.storage.keyed import (
    KeyedClient,
    compact,
    compact_again_and_again,
    compacted_machine,
    consume,
    newest,
    stored,
)


async def test_what_was_aborted_behind_the_compacted_part_does_not_replace_what_was_not() -> None:
    """The marker is in the active segment, which a pass leaves alone."""
    partition = await compacted_machine().start()
    plain = KeyedClient(partition)
    aborted = KeyedClient(partition, producer_id=2, is_transactional=True)
    plain.send(("a", "1"), ("b", "1"))
    aborted.send(("a", "aborted"))
    await partition.flush()
    partition.log.roll()
    aborted.end(committed=False)
    plain.send(("c", "1"))
    await compact(partition, roll=False)
    assert len(partition.log.segments) == 2
    assert newest(await consume(partition)) == {"a": (0, "1"), "b": (1, "1"), "c": (4, "1")}
    assert await partition.log.aborted(0, 5) == (AbortedTransaction(2, 2),)


async def test_an_aborted_value_is_no_newer_one() -> None:
    """Neither is an aborted deletion."""
    partition = await compacted_machine().start()
    plain = KeyedClient(partition)
    aborted = KeyedClient(partition, producer_id=2, is_transactional=True)
    plain.send(("a", "1"), ("b", "1"))
    aborted.send(("a", "aborted"), ("b", None))
    aborted.end(committed=False)
    plain.send(("c", "1"))
    await compact(partition)
    assert newest(await consume(partition)) == {"a": (0, "1"), "b": (1, "1"), "c": (5, "1")}
    found = [record.offset for record in await consume(partition, read_committed=False)]
    assert found == [0, 1, 5]


async def test_a_batch_without_records_still_needs_its_marker() -> None:
    """Its header opens the transaction when all is read from the start."""
    machine = compacted_machine(segment_bytes=200)
    partition = await machine.start()
    client = KeyedClient(partition, producer_id=2, is_transactional=True)
    client.send(("a", "1"))
    await partition.flush()
    partition.log.roll()  # the last batch of a segment stays, with its records or without
    client.end(committed=True)
    KeyedClient(partition, producer_id=3).send(("a", "2"))
    client.end(committed=True)  # so that the one before is not the last that is known of it
    await compact(partition)
    await compact_again_and_again(partition, machine)
    left = [(header.base_offset, header.record_count) for header, _ in await stored(partition)]
    assert left == [(0, 0), (1, 1), (2, 1), (3, 1)]
    machine.disk.remove(f"{partition.log.directory}/checkpoint")
    partition = await machine.restart_after_kill()
    assert partition.open_transactions() == []
    assert partition.last_stable_offset == partition.log_end_offset == 4
