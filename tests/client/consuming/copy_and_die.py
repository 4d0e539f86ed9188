"""A process that copies a topic in commit order and is killed: ADDRESS SOURCE TARGET COUNT STEP.

Each round is one transaction with the output and the offsets. The process is killed at its STEP-th
step, which may be between any two calls; it ends when the group has copied COUNT records.
"""

import os
import signal
import sys

from odradek.client.blocking import Consumer, Producer, TopicPartition


def main(address: str, source: str, target: str, count: str, step: str) -> None:
    left = int(step)

    def reached() -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    with (
        Consumer(
            address, group_id=source, order="commit", transaction_buffer_bytes=300
        ) as consumer,
        Producer(address, transactional_id=f"{source}-copy") as producer,
        Consumer(address) as onlooker,
    ):
        place, target_place = TopicPartition(source, 0), TopicPartition(target, 0)
        consumer.assign([place])
        onlooker.assign([target_place])
        copied = 0
        while copied < int(count):
            copied += len(onlooker.poll(0))
            with producer.transaction() as transaction:
                for record in consumer.poll(200, max_records=3):
                    transaction.send(target, record.value, partition=0)
                    reached()
                transaction.send_offsets(consumer.offsets_to_commit(), consumer.group_metadata())
                reached()
            reached()


if __name__ == "__main__":
    main(*sys.argv[1:])
