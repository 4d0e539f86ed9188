"""An honest producer beside hostile strangers: its p99, and what they cost the broker.

The listener is SASL_SSL with a certificate of RSA 4096, whose handshakes are the dearest. The
honest producer is connected, and sends one record after the other. Then strangers come, all kinds
at once (`flood_job.py`): silent connections, connections that trickle the bytes of a handshake,
whole handshakes that lead to nothing, and wrong passwords. They are a process with a processor of
its own, by taskset. The broker and the producer share the others. A machine with one processor
measures nothing.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from scripts.benchmarks.figures import OURS, Figure, below
from scripts.benchmarks.process import resident_mib
from scripts.benchmarks.targets import Target
from tests.certificates import Authority

FAMILY: Final = "flood"
SECONDS: Final = 20.0
QUICK_SECONDS: Final = 4.0
WARM_UP: Final = 200
"""Records that do not count."""
RSA_BITS: Final = 4096
MEMORY_MAX_MIB: Final = 64.0
TIMES_MAX: Final = 2.0
"""The most by which a flood may lengthen the p99 of an honest producer."""
USER: Final = ("honest", "secret of an honest client")
VALUE: Final = b"x" * 100
PATIENCE_SECONDS: Final = 60.0


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    """Measure our broker: a foreign one would need the same listener and user."""
    if target.name != OURS:
        return
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) < 2 or shutil.which("taskset") is None:
        reason = "needs two processors and taskset"
        yield Figure.without_value(FAMILY, "produce p99 under a flood", reason)
        return
    *ours, theirs = processors
    os.sched_setaffinity(0, ours)  # the broker inherits it
    try:
        yield from _measured(theirs, QUICK_SECONDS if quick else SECONDS)
    finally:
        os.sched_setaffinity(0, processors)


def _measured(processor: int, seconds: float) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
        authority = Authority(Path(directory))
        with _broker(Path(directory), authority) as broker:
            producer = Producer(_client(broker.port, authority))
            _times_ms(producer, count=WARM_UP)
            alone_ms = _p99(_times_ms(producer, seconds=seconds))
            before_mib = resident_mib(broker.process.pid)
            with _flood(processor, broker.port):
                flooded_ms = _p99(_times_ms(producer, seconds=seconds))
                more_mib = resident_mib(broker.process.pid) - before_mib
            assert producer.flush(PATIENCE_SECONDS) == 0, "the honest producer lost records"
    yield Figure(family=FAMILY, name="produce p99, no flood", value=alone_ms, unit="ms")
    yield Figure(family=FAMILY, name="produce p99 under a flood", value=flooded_ms, unit="ms")
    yield Figure(
        family=FAMILY,
        name="produce p99 under a flood, of that without",
        value=flooded_ms / alone_ms,
        unit="times",
        floor=below(TIMES_MAX),
    )
    yield Figure(
        family=FAMILY,
        name="memory that a flood costs",
        value=max(0.0, more_mib),
        unit="MiB",
        floor=below(MEMORY_MAX_MIB),
    )


@contextlib.contextmanager
def _broker(directory: Path, authority: Authority) -> Iterator[Any]:
    from cryptography.hazmat.primitives.asymmetric import rsa

    from odradek.broker.testing import RunningBroker, run_broker

    class SecuredBroker(RunningBroker):
        listener = "SASL_SSL"

    key = rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)
    name, password = USER
    config = {
        "ssl.keystore.location": authority.signed("broker", key=key).both_file,
        "num.partitions": "1",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'user_{name}="{password}";'
        ),
    }
    with run_broker(data_dir=directory / "data", config=config, kind=SecuredBroker) as broker:
        yield broker


def _client(port: int, authority: Authority) -> dict[str, Any]:
    name, password = USER
    return {
        "bootstrap.servers": f"localhost:{port}",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": authority.file,
        "sasl.mechanism": "PLAIN",
        "sasl.username": name,
        "sasl.password": password,
        "enable.idempotence": True,
        "linger.ms": 0,
    }


def _times_ms(producer: Producer, *, seconds: float = 0.0, count: int = 0) -> list[float]:
    """Return the milliseconds of each record, sent one after the other."""
    times: list[float] = []
    ends = time.perf_counter() + seconds
    while len(times) < count or time.perf_counter() < ends:
        began = time.perf_counter()
        producer.produce("flood", VALUE)
        assert producer.flush(PATIENCE_SECONDS) == 0, "a record was not acknowledged"
        times.append((time.perf_counter() - began) * 1000)
    return times


def _p99(times_ms: list[float]) -> float:
    return sorted(times_ms)[len(times_ms) * 99 // 100]


@contextlib.contextmanager
def _flood(processor: int, port: int) -> Iterator[None]:
    """Run the strangers while the block runs. It begins when all of them are there."""
    job = [sys.executable, "-m", "scripts.benchmarks.flood_job", str(port)]
    command = ["taskset", "--cpu-list", str(processor), *job]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said, "the flood did not begin"
        yield
    finally:
        process.kill()
        process.communicate()
