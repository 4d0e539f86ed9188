"""The requests of clients and of brokers: their number, their time, and what they waited for."""

from typing import Final

from odradek.broker.api.index import ROWS
from odradek.broker.environment.turns import Turns
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.inside import Inside

MEMORY = "memory"
STEPS = 10
NAMES: Final = {row.key: row.name for row in ROWS}


async def add_requests(families: Families, inside: Inside, turns: Turns) -> None:
    for of, server in (("clients", inside.server), ("brokers", inside.peer_server)):
        counts = server.counts
        assert counts is not None, "the server counts if there is a page"
        for key, seconds in sorted(counts.seconds.items()):
            await turns.take(STEPS)
            labels = {"request": NAMES[key], "of": of}
            families.counter(
                "kafka_network_requestmetrics_requests",
                "Requests that were answered.",
                seconds.count,
                **labels,
            )
            families.counter(
                "kafka_network_requestmetrics_errors",
                "Requests whose answer has an error.",
                counts.errors[key],
                **labels,
            )
            families.histogram(
                "odradek_request_seconds",
                "The time from the arrival of a request until its answer is known.",
                seconds,
                **labels,
            )
        for cause, waits in {**counts.waits, MEMORY: server.memory.waits}.items():
            await turns.take(STEPS)
            families.histogram(
                "odradek_request_wait_seconds",
                "The time that requests have waited, by what they waited for.",
                waits,
                cause=cause,
                of=of,
            )
