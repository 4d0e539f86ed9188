"""Compaction of transactions of which a pass sees only a part."""

from odradek.broker.environment.work import whole
from odradek.broker.storage.aborted import AbortedTxn
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
    """The marker is in the active segment, which a pass does not touch."""
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
    assert await partition.log.reader.aborted(0, 5) == (AbortedTxn(2, 2),)


async def test_an_aborted_value_is_no_newer_one() -> None:
    """An aborted tombstone deletes nothing either."""
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
    """Its header opens the transaction when recovery reads the whole log."""
    machine = compacted_machine(segment_bytes=200)
    partition = await machine.start()
    client = KeyedClient(partition, producer_id=2, is_transactional=True)
    client.send(("a", "1"))
    await partition.flush()
    partition.log.roll()  # the last batch of a segment stays, with or without its records
    client.end(committed=True)
    KeyedClient(partition, producer_id=3).send(("a", "2"))
    client.end(committed=True)  # so that the batch before is not the last one of its producer
    await compact(partition)
    await compact_again_and_again(partition, machine)
    left = [(header.base_offset, header.record_count) for header, _ in await stored(partition)]
    assert left == [(0, 0), (1, 1), (2, 1), (3, 1)]
    machine.disk.remove(f"{partition.log.directory}/checkpoint")
    partition = await machine.restart_after_kill()
    assert partition.open_transactions() == []
    assert partition.last_stable_offset == partition.log_end_offset == 4


async def test_a_marker_goes_after_all_data_of_its_transaction() -> None:
    """KAFKA-13727, KAFKA-8351: the marker was removed first, and the transaction was open again."""
    machine = compacted_machine()
    partition = await machine.start()
    client = KeyedClient(partition, producer_id=2, is_transactional=True)
    client.send(("a", "1"))
    client.end(committed=True)
    client.send(("a", "2"))
    client.end(committed=False)
    client.send(("b", "1"))
    client.end(committed=True)
    KeyedClient(partition, producer_id=7).send(("a", "3"))

    async def markers() -> list[int]:
        return [header.base_offset for header, _ in await stored(partition) if header.is_control]

    await compact(partition)
    assert await markers() == [1, 3, 5]  # their data was there when the pass began
    assert len(await partition.log.reader.aborted(0, partition.log_end_offset)) == 1
    await compact_again_and_again(partition, machine, 1)
    assert await markers() == [1, 3, 5]  # their delete horizon has not passed
    await compact_again_and_again(partition, machine, 1)
    assert await markers() == [5]
    assert await partition.log.reader.aborted(0, partition.log_end_offset) == ()


async def test_a_marker_stays_as_long_as_its_data() -> None:
    """KAFKA-8351, KAFKA-6854: without its marker the transaction was open for ever."""
    machine = compacted_machine()
    partition = await machine.start()
    client = KeyedClient(partition, producer_id=2, is_transactional=True)
    client.send(("a", "1"))
    client.end(committed=True)
    client.send(("b", "1"), ("c", "1"))
    client.end(committed=True)
    client.send(("c", "2"))
    client.end(committed=False)
    client.send(("c", "3"))
    client.end(committed=True)
    await compact(partition)
    await compact_again_and_again(partition, machine)
    kept = [(header.base_offset, header.is_control) for header, _ in await stored(partition)]
    assert kept == [(0, False), (1, True), (2, False), (4, True), (7, False), (8, True)]
    machine.disk.remove(f"{partition.log.directory}/checkpoint")
    partition = await machine.restart_after_kill()
    assert partition.last_stable_offset == partition.log_end_offset == 9
    assert newest(await consume(partition)) == {"a": (0, "1"), "b": (2, "1"), "c": (7, "3")}


async def test_markers_of_transactions_without_records_go() -> None:
    """KAFKA-10702: only the last marker of a producer stays, because it has the epoch."""
    machine = compacted_machine()
    partition = await machine.start()
    client = KeyedClient(partition, producer_id=2, is_transactional=True)
    for number in range(20):
        client.end(committed=number % 2 == 0)
    KeyedClient(partition, producer_id=3).send(("a", "1"))
    await compact(partition)
    await compact_again_and_again(partition, machine)
    left = [header.producer_epoch for header, _ in await stored(partition) if header.is_control]
    assert left == [20]
    assert await partition.log.reader.aborted(0, partition.log_end_offset) == ()
    machine.disk.remove(f"{partition.log.directory}/checkpoint")
    partition = await machine.restart_after_kill()
    assert partition.log.producers.entries[2].epoch == 20


async def test_the_last_batch_of_a_producer_stays_until_it_is_forgotten() -> None:
    machine = compacted_machine(producer_id_expiration_ms=10_000)
    partition = await machine.start()
    idle, busy = KeyedClient(partition, producer_id=1), KeyedClient(partition, producer_id=2)
    idle.send(("a", "1"), ("a", "2"))
    busy.send(("a", "3"))
    busy.send(("b", "1"))
    await compact(partition)
    header, _ = (await stored(partition))[0]
    assert (header.producer_id, header.record_count, header.last_sequence) == (1, 0, 1)
    assert [record.offset for record in await consume(partition, max_bytes=61)] == [2, 3]
    machine.disk.remove(f"{partition.log.directory}/checkpoint")
    partition = await machine.restart_after_kill()
    idle.partition = partition
    idle.send(("c", "1"))  # its sequence goes on
    machine.clock.advance(10_001)
    before_ms = machine.clock.wall_ms() - partition.config.producer_id_expiration_ms
    assert sorted(whole(partition.log.producers.expire(before_ms, before_ms))) == [1, 2]
    await compact(partition)
    assert all(header.record_count for header, _ in await stored(partition))
