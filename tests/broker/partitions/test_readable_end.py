"""The last record that a reader of committed records can get, found from the end of a log."""

import random

import pytest

from odradek.broker.partitions import readable_end as module
from odradek.broker.partitions.readable_end import readable_end, time_of_record
from odradek.broker.storage.config import LogConfig
from odradek.protocol.batch import TimestampType
from tests.broker.storage.samples import Client, Machine, batch
from tests.fakes.clock import START_MS


async def test_markers_and_aborted_records_at_the_end_are_behind_the_last_record() -> None:
    partition = await Machine().start()
    assert await readable_end(partition) == 0
    partition.leader().append_from_client(batch("plain"))  # 0
    await partition.flush()
    assert await readable_end(partition) == 1
    client = Client(partition, is_transactional=True)
    client.send("committed")  # 1
    await partition.flush()
    assert await readable_end(partition) == 1, "its transaction is open"
    client.end(committed=True)  # 2
    await partition.flush()
    assert await readable_end(partition) == 2
    for _ in range(20):
        client.send("aborted")
        client.end(committed=False)
    await partition.flush()
    assert partition.last_stable_offset == 43
    assert await readable_end(partition) == 2


async def test_what_an_open_transaction_holds_back_cannot_be_read() -> None:
    partition = await Machine().start()
    client = Client(partition, is_transactional=True)
    client.send("open")
    partition.leader().append_from_client(batch("plain"))
    await partition.flush()
    assert await readable_end(partition) == 0
    client.end(committed=False)
    await partition.flush()
    assert await readable_end(partition) == 2


@pytest.mark.parametrize("seed", range(20))
async def test_it_is_behind_the_last_record_of_any_history(seed: int) -> None:
    dice = random.Random(seed)
    config = LogConfig(segment_bytes=dice.choice([1_000, 1 << 20]))
    partition = await Machine(config=config).start()
    clients = [Client(partition, producer_id=n, is_transactional=True) for n in range(1, 4)]
    open_ends: list[list[int]] = [[] for _ in clients]
    """The ends of the batches of each client's open transaction."""
    good_ends = [0]
    """The ends of batches that are in no transaction, or in one that was committed."""
    for _ in range(dice.randrange(1, 150)):
        number = dice.randrange(len(clients))
        client, ends = clients[number], open_ends[number]
        if dice.random() < 0.1:
            partition.leader().append_from_client(batch("plain"))
            good_ends.append(partition.log_end_offset)
        elif ends and dice.random() < 0.5:
            committed = dice.random() < 0.2
            client.end(committed=committed)
            good_ends += ends if committed else []
            ends.clear()
        else:
            client.send(*["x"] * dice.randrange(1, 4))
            ends.append(partition.log_end_offset)
        if dice.random() < 0.2:
            await partition.flush()
            expected = max(end for end in good_ends if end <= partition.last_stable_offset)
            assert await readable_end(partition) == expected


async def test_a_long_search_ends_and_the_offset_is_not_too_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SEARCHED_BYTES", 2_000)
    partition = await Machine().start()
    partition.leader().append_from_client(batch("plain"))
    client = Client(partition, is_transactional=True)
    for _ in range(200):
        client.send("aborted")
        client.end(committed=False)
    await partition.flush()
    assert 1 < await readable_end(partition) < partition.last_stable_offset - 10


async def test_the_time_is_that_of_the_first_record_that_can_be_read() -> None:
    partition = await Machine().start()
    client = Client(partition, is_transactional=True)
    client.send("aborted")  # at START_MS
    client.end(committed=False)
    first, second = START_MS + 5_000, START_MS + 9_000
    partition.leader().append_from_client(batch("first", timestamp_ms=first))
    partition.leader().append_from_client(batch("second", timestamp_ms=second))
    await partition.flush()
    assert await time_of_record(partition, 0) == first
    assert await time_of_record(partition, 3) == second


async def test_with_log_append_time_it_is_that_of_the_append() -> None:
    """A group would look late by as much as the clock of a producer is wrong."""
    config = LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    machine = Machine(config=config)
    partition = await machine.start()
    old = batch("of a wrong clock", timestamp_ms=START_MS - 3_600_000)
    partition.leader().append_from_client(old)
    await partition.flush()
    assert await time_of_record(partition, 0) == machine.clock.wall_ms()
