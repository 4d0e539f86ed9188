"""The processor of the demo: it reports on standard output, and it can be ordered to die.

--die-after N    kill -9 itself inside an open transaction, after N refunds were written
--pause-after N  stop there instead (SIGSTOP): a zombie, which wakes after others have taken over
"""

import json
import os
import signal

import click

from odradek.client import Fenced
from odradek.client.blocking import Producer
from scripts.refunds.processor import FENCED_STATUS, process


def say(**event: object) -> None:
    print(json.dumps(event), flush=True)


class Fate:
    """A counter of the open slice's refunds that kills at the Nth, when the broker has them all."""

    def __init__(self, after: int, number: signal.Signals) -> None:
        self.left, self.number = after, number

    def __call__(self, producer: Producer) -> None:
        self.left -= 1
        if self.left == 0:
            producer.flush()
            if self.number == signal.SIGSTOP:
                say(paused=True)
            os.kill(os.getpid(), self.number)


@click.command()
@click.option("--bootstrap", required=True)
@click.option("--partition", type=int, required=True)
@click.option("--until", type=int, required=True)
@click.option("--slice", "slice_records", type=int, required=True)
@click.option("--die-after", type=int)
@click.option("--pause-after", type=int)
def main(
    bootstrap: str,
    partition: int,
    until: int,
    slice_records: int,
    die_after: int | None,
    pause_after: int | None,
) -> None:
    if pause_after:
        fate = Fate(pause_after, signal.SIGSTOP)
    else:
        fate = Fate(die_after or 0, signal.SIGKILL)
    try:
        process(
            bootstrap,
            partition,
            until=until,
            slice_records=slice_records,
            committed=lambda offset: say(committed=offset),
            refunded=fate,
        )
    except Fenced as error:
        say(fenced=str(error))
        raise SystemExit(FENCED_STATUS) from None
    say(done=True)


if __name__ == "__main__":
    main()
