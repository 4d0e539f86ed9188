"""The metadata store, and the disk."""

from odradek.broker.environment.turns import Turns
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.inside import Inside
from odradek.broker.metrics.timed_store import KEEP_LEASE


async def add_store(families: Families, inside: Inside, turns: Turns) -> None:
    await turns.take()
    probes = inside.probes
    families.histogram(
        "odradek_fsync_seconds", "The time of an fsync of a log or of the journal.", probes.fsyncs
    )
    for op, seconds in probes.store.seconds.items():
        families.histogram(
            "odradek_metastore_seconds", "The time of a call of the metadata store.", seconds, op=op
        )
    # A broker without others keeps no lease: its store is in its own memory, and never behind.
    keeps_lease = probes.store.seconds[KEEP_LEASE].count > 0
    families.gauge(
        "odradek_metastore_watch_age_seconds",
        "The time since this broker is known to have had everything that the store has.",
        probes.store.watch_age_seconds if keeps_lease else 0,
    )
