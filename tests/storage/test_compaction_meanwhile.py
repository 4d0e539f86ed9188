"""What else happens to a log while it is being compacted."""

import trio

from tests.storage.keyed import (
    KeyedClient,
    compact,
    compact_again_and_again,
    compacted_machine,
    consume,
    newest,
)


async def test_records_that_are_deleted_meanwhile_stay_deleted() -> None:
    """At every moment of a pass: what it has read may not be there any more when it is done."""
    moment, is_over = 0, False
    while not is_over:
        machine = compacted_machine(segment_bytes=400)
        partition = await machine.start()
        client = KeyedClient(partition)
        for number in range(12):
            client.send((f"key {number % 5}", f"{number}"))
        await partition.flush()
        partition.log.roll()
        over = trio.Event()

        async def clean() -> None:
            await compact(partition, roll=False)  # noqa: B023
            over.set()  # noqa: B023

        async with trio.open_nursery() as nursery:
            nursery.start_soon(clean)
            for _ in range(moment):
                await trio.lowlevel.checkpoint()
            is_over = over.is_set()
            await partition.delete_before(8)
        assert partition.log_start_offset == 8
        expected = {f"key {number % 5}": (number, f"{number}") for number in range(8, 12)}
        assert newest(await consume(partition)) == expected, moment
        await compact_again_and_again(partition, machine, times=1)
        partition = await machine.restart_after_kill()
        assert newest(await consume(partition)) == expected, moment
        moment += 1
    assert moment > 20
