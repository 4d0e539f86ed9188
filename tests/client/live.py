"""What live tests share."""

import itertools
import os

from click.testing import CliRunner, Result

from odradek.broker.cli import main
from odradek.client import Consumer, ConsumerRecord, TopicPartition
from odradek.client.config import Isolation

_COUNTER = itertools.count()
WAIT_MS = 60_000
"""Longer than any machine takes. A wait that reaches it has failed."""


def name_of(what: str) -> str:
    """A name that no other test uses: the brokers are shared."""
    return f"client-{what}-{os.getpid()}-{next(_COUNTER)}"


async def read_all(
    bootstrap: str,
    topic: str,
    *,
    partitions: int = 1,
    isolation_level: Isolation = "read_committed",
    count: int | None = None,
) -> list[ConsumerRecord]:
    """Every record up to the end there is now, or at least `count` of them."""
    wanted = [TopicPartition(topic, number) for number in range(partitions)]
    records: list[ConsumerRecord] = []
    async with Consumer(bootstrap, isolation_level=isolation_level) as consumer:
        consumer.assign(wanted)
        ends = await consumer.end_offsets(wanted)
        while len(records) < (count or 0) or any(
            [await consumer.position(partition) < end for partition, end in ends.items()]
        ):
            records += await consumer.poll(500)
    return records


class Run:
    """Runs `odradek` with arguments and the address of one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(self, *args: str, given: str | bytes = "") -> Result:
        environment = {"ODRADEK_BOOTSTRAP": self.bootstrap}
        patience = () if "--timeout" in args else ("--timeout", str(WAIT_MS // 1000))
        return CliRunner().invoke(main, (*args, *patience), input=given, env=environment)

    def said(self, *args: str, given: str | bytes = "") -> str:
        """Standard output of a command that must end well."""
        result = self(*args, given=given)
        assert result.exit_code == 0, result.output
        return result.stdout
