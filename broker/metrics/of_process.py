"""The process: its memory and processor time, the loop, and the memory of requests."""

import contextlib

from prometheus_client import ProcessCollector
from prometheus_client.metrics_core import Metric

from odradek import __version__
from odradek.broker.environment.turns import Turns
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.inside import Inside


def of_process() -> list[Metric]:
    """Return what the system says of the process.

    It lists the open files, of which there are several for each partition. So call it in a thread.
    """
    return [*ProcessCollector(registry=None).collect()]


async def add_process(families: Families, inside: Inside, turns: Turns) -> None:
    await turns.take()
    about = "Always 1; its label is the version."
    families.gauge("odradek_build_info", about, 1, version=__version__)
    loop_lag = inside.loop_lag
    families.histogram(
        "odradek_loop_lag_seconds",
        "How late a task of the event loop wakes.",
        loop_lag.seconds,
    )
    busy = inside.probes.loop_busy.ratio
    about = "The part of the last minute in which the event loop was busy."
    families.gauge("odradek_loop_busy_ratio", about, busy)
    name = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"
    families.gauge(name, "1 less the part that is busy: odradek_loop_busy_ratio.", 1 - busy)
    for pool, memory in (("clients", inside.server.memory), ("brokers", inside.peer_server.memory)):
        families.gauge(
            "odradek_memory_held_bytes",
            "Bytes of requests and answers beyond those that each connection may always have.",
            memory.used_bytes,
            pool=pool,
        )
        families.gauge(
            "odradek_memory_limit_bytes",
            "The most bytes of the pool (queued.max.request.bytes).",
            memory.limit_bytes,
            pool=pool,
        )
    free_bytes = total_bytes = None
    with contextlib.suppress(OSError):  # of a disk that has failed: all else is on the page
        usage = inside.core.partitions.usage()
        free_bytes, total_bytes = usage.free_bytes, usage.total_bytes
    families.gauge("odradek_disk_free_bytes", "Free bytes of the data directory.", free_bytes)
    families.gauge("odradek_disk_bytes", "Bytes of the disk of the directory.", total_bytes)
