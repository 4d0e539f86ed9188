"""The processor of the demo: it reports on standard output, and it can be ordered to die.

--die-after N    kill -9 itself inside an open transaction, after N refunds were written
--pause-after N  stop there instead (SIGSTOP): a zombie, which wakes after others have taken over
--offsets WHERE  break exactly-once, so that a test sees the demo fail: `outside` the transaction,
                 or in it by the `bare` name of the group

SIGTERM ends it as `sys.exit` does: it leaves the group, and an open transaction is aborted.
"""

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Final

import click

from odradek.client import Aborted, Fenced
from odradek.client.blocking import Consumer, Producer, Transaction
from odradek.client.types import GroupMetadata, TopicPartition
from scripts.refunds.processor import (
    FENCED_STATUS,
    GROUP,
    Observer,
    Offsets,
    Store,
    in_transaction,
    process,
    security_of,
)


def say(**event: object) -> None:
    print(json.dumps(event), flush=True)


class Reporter(Observer):
    """Report each event, and carry out the order to die: `number` at the Nth refund.

    The broker has all rows of the open slice by then.
    """

    def __init__(self, after: int, number: signal.Signals) -> None:
        self.left, self.number = after, number

    def assigned(self, partitions: list[TopicPartition]) -> None:
        say(assigned=numbers(partitions))

    def revoked(self, partitions: list[TopicPartition]) -> None:
        say(revoked=numbers(partitions))

    def lost(self, partitions: list[TopicPartition]) -> None:
        say(lost=numbers(partitions))

    def committed(self, offsets: Offsets) -> None:
        say(committed={place.partition: offset for place, offset in offsets.items()})

    def aborted(self, error: Aborted) -> None:
        say(aborted=str(error))

    def refunded(self, producer: Producer) -> None:
        self.left -= 1
        if self.left == 0:
            producer.flush()
            if self.number == signal.SIGSTOP:
                say(paused=True)
            os.kill(os.getpid(), self.number)


def numbers(partitions: list[TopicPartition]) -> list[int]:
    return sorted(place.partition for place in partitions)


def outside(consumer: Consumer, txn: Transaction, offsets: Offsets, member: GroupMetadata) -> None:
    consumer.commit_soon(offsets)


def bare(consumer: Consumer, txn: Transaction, offsets: Offsets, member: GroupMetadata) -> None:
    txn.send_offsets(offsets, GROUP)


STORES: Final[dict[str, Store]] = {
    "transaction": in_transaction,
    "outside": outside,
    "bare": bare,
}


def stop(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


@click.command()
@click.option("--bootstrap", required=True)
@click.option("--name", required=True)
@click.option("--slice", "slice_records", type=int, required=True)
@click.option("--session", "session_timeout_ms", type=int)
@click.option("--command-config", type=click.Path(path_type=Path))
@click.option("--die-after", type=int)
@click.option("--pause-after", type=int)
@click.option("--offsets", type=click.Choice([*STORES]), default="transaction")
def main(
    bootstrap: str,
    name: str,
    slice_records: int,
    session_timeout_ms: int | None,
    command_config: Path | None,
    die_after: int | None,
    pause_after: int | None,
    offsets: str,
) -> None:
    signal.signal(signal.SIGTERM, stop)
    if pause_after:
        reporter = Reporter(pause_after, signal.SIGSTOP)
    else:
        reporter = Reporter(die_after or 0, signal.SIGKILL)
    try:
        process(
            bootstrap,
            name,
            slice_records=slice_records,
            session_timeout_ms=session_timeout_ms,
            observer=reporter,
            store=STORES[offsets],
            security=security_of(command_config),
        )
    except Fenced as error:
        say(fenced=str(error))
        raise SystemExit(FENCED_STATUS) from None


if __name__ == "__main__":
    main()
