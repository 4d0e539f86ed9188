"""Many transactional producers in one process, with a transaction a second each, until killed.

    python -m scripts.benchmarks.crowd_job ADDRESS TOPIC PRODUCERS SECONDS_BETWEEN

The job prints one line when every producer has committed its first transaction. A second is
measured from start to start. The producers start at different moments, so that they do not send
in waves.
"""

import sys
from typing import Final

import trio

from odradek.client import Producer, TopicPartition

VALUE: Final = b"x" * 100


async def main(address: str, topic: str, count: int, seconds: float) -> None:
    first = [trio.Event() for _ in range(count)]
    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(produce, address, topic, number, count, seconds, first[number])
        for event in first:
            await event.wait()
        print(f"{count} producers at work", flush=True)


async def produce(
    address: str, topic: str, number: int, count: int, seconds: float, first: trio.Event
) -> None:
    await trio.sleep(seconds * number / count)
    async with Producer(address, transactional_id=f"crowd-{number}") as sender:
        done = 0
        start = trio.current_time()
        while True:
            async with sender.transaction() as transaction:
                await transaction.send(topic, VALUE, partition=0)
                await transaction.send(topic, VALUE, partition=1)
                offsets = {TopicPartition(topic, 0): done}
                await transaction.send_offsets(offsets, f"crowd-group-{number}")
            done += 1
            first.set()
            await trio.sleep_until(max(start + done * seconds, trio.current_time()))


if __name__ == "__main__":
    given = sys.argv
    trio.run(main, given[1], given[2], int(given[3]), float(given[4]))
