"""4,096 connections that have each asked one thing and are silent: memory of each, and the CPU."""

import contextlib
import resource
import time
from collections.abc import Iterator
from typing import Final

from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsRequest
from scripts.benchmarks.figures import Figure
from scripts.benchmarks.idle import processor_seconds
from scripts.benchmarks.many import Where
from scripts.benchmarks.process import MIB, resident_mib
from scripts.benchmarks.targets import Target
from tests.broker.raw import RawClient

FAMILY: Final = "connections"
COUNT: Final = 4_096
QUICK_COUNT: Final = 512
SPARE_FILES: Final = 1_024
SECONDS: Final = 20.0
QUICK_SECONDS: Final = 5.0
SETTLE_SECONDS: Final = 3.0


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    """Measure a broker that this process started: the memory of another one is not known."""
    if target.new_process is None:
        return
    count = QUICK_COUNT if quick else COUNT
    seconds = QUICK_SECONDS if quick else SECONDS
    _allow_files(count + SPARE_FILES)  # the broker inherits the limit
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(target.served())
        assert broker.pid is not None
        host, _, port = broker.address.rpartition(":")
        time.sleep(SETTLE_SECONDS)
        before_mib = resident_mib(broker.pid)
        for _ in range(count):
            client = stack.enter_context(RawClient(Where(host, int(port))))
            client.ask(API_VERSIONS, 3, _WHO)
        time.sleep(SETTLE_SECONDS)
        each_kib = (resident_mib(broker.pid) - before_mib) * MIB / count / 1024
        before_seconds = processor_seconds(broker.pid)
        time.sleep(seconds)
        percent = (processor_seconds(broker.pid) - before_seconds) / seconds * 100
    yield Figure(
        family=FAMILY, name=f"memory of each of {count:,} connections", value=each_kib, unit="KiB"
    )
    yield Figure(
        family=FAMILY, name=f"{count:,} idle connections", value=percent, unit="% of a core"
    )


_WHO: Final = ApiVersionsRequest(client_software_name="bench", client_software_version="1")


def _allow_files(count: int) -> None:
    """Raise the limit of open files of this process and its children to at least `count`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
