"""What a connection over SASL_SSL costs our broker besides its requests.

A handshake must not hold up the loop, in which all other clients are served: its dear steps run in
threads. The longest step of a connection's task is measured in the broker's own process
(`task_steps.py`), from its beginning to its end on the clock, waits for the interpreter and for a
processor included. The client agrees on TLS, authenticates, and goes; one comes after the other.

An idle connection keeps the state of TLS, which OpenSSL has beside ours.
"""

import contextlib
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, rsa

from odradek.protocol.apis.sasl import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsRequest
from scripts.benchmarks.connections import SETTLE_SECONDS, SPARE_FILES, allow_files
from scripts.benchmarks.figures import OURS, Figure, below
from scripts.benchmarks.many import Where
from scripts.benchmarks.process import MIB, resident_mib
from scripts.benchmarks.security import PASSWORD, SASL_SSL, USER, broker_settings
from scripts.benchmarks.targets import OurProcess, Process, Target, wait_until_serving
from scripts.benchmarks.task_steps import OUTPUT, longest_ms
from tests.broker.raw import RawClient
from tests.certificates import Authority

FAMILY: Final = "strangers"
HANDSHAKES: Final = 500
WARM_UP: Final = 50
"""Handshakes that do not count: in the first ones modules are imported."""
IDLE: Final = 2_000
QUICK_PART: Final = 10
STEP_MAX_MS: Final = 1.0
IDLE_MAX_KIB: Final = 32.0
RSA_BITS: Final = 4096
KEYS: Final[dict[str, Callable[[], object]]] = {
    "ECDSA P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
    f"RSA {RSA_BITS}": lambda: rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS),
}


def measure(target: Target, quick: bool) -> Iterator[Figure]:
    """Measure our broker: the steps of another one's loop are not known."""
    if target.name != OURS:
        return
    part = QUICK_PART if quick else 1
    for kind, new_key in KEYS.items():
        steps_ms = sorted(_steps_ms(new_key(), HANDSHAKES // part))
        name = f"longest step of a handshake in the loop, {kind}"
        for what, value_ms in (
            ("p50", statistics.median(steps_ms)),
            ("p99", steps_ms[len(steps_ms) * 99 // 100]),
        ):
            yield Figure(
                family=FAMILY,
                name=f"{name}, {what}",
                value=value_ms,
                unit="ms",
                floor=below(STEP_MAX_MS),
            )
    yield from _idle(target, IDLE // part)


class SaslSslClient(RawClient):
    """A `RawClient` that has authenticated over TLS."""

    def __init__(self, broker: Where, context: ssl.SSLContext) -> None:
        super().__init__(broker)
        # Otherwise the broker's acknowledgement of half a handshake is waited for.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = context.wrap_socket(self.socket)
        self.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        token = f"\0{USER}\0{PASSWORD}".encode()
        answer = self.ask(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=token))
        assert not answer.error_code, answer


def _context(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.file)
    context.check_hostname = False
    return context


def _steps_ms(key: object, count: int) -> list[float]:
    """Return the longest step of each of so many connections."""
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as name:
        directory = Path(name)
        authority = Authority(directory)
        output = directory / "steps"
        process = OurProcess(
            directory / "data",
            broker_settings(SASL_SSL, authority, key),
            ("env", f"{OUTPUT}={output}", sys.executable, "-m", "scripts.benchmarks.task_steps"),
            (SASL_SSL,),
        )
        try:
            process.launch()
            wait_until_serving(process)
            context = _context(authority)
            for _ in range(WARM_UP + count):
                with SaslSslClient(Where(process.host, process.ports[SASL_SSL]), context):
                    pass
            process.stop()
            return longest_ms(output)[-count:]
        finally:
            process.kill()


def _idle(target: Target, count: int) -> Iterator[Figure]:
    allow_files(count + SPARE_FILES)  # the broker inherits the limit
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
        authority = Authority(Path(directory))
        context = _context(authority)
        plain_kib = _each_kib(
            target, authority, count, lambda broker: RawClient(Where(broker.host, broker.port))
        )
        encrypted_kib = _each_kib(
            target,
            authority,
            count,
            lambda broker: SaslSslClient(Where(broker.host, broker.ports[SASL_SSL]), context),
        )
    name = f"memory of each of {count:,} idle connections"
    yield Figure(family=FAMILY, name=f"{name}, plain", value=plain_kib, unit="KiB")
    yield Figure(family=FAMILY, name=f"{name}, SASL_SSL", value=encrypted_kib, unit="KiB")
    yield Figure(
        family=FAMILY,
        name=f"{name}, SASL_SSL beyond plain",
        value=encrypted_kib - plain_kib,
        unit="KiB",
        floor=below(IDLE_MAX_KIB),
    )


def _each_kib(
    target: Target, authority: Authority, count: int, connect: Callable[[Process], RawClient]
) -> float:
    """Return the memory of a new broker for each of so many connections that have asked once."""
    assert target.new_process is not None
    with (
        target.new_process(broker_settings(SASL_SSL, authority), (SASL_SSL,)) as broker,
        contextlib.ExitStack() as stack,
    ):
        broker.launch()
        wait_until_serving(broker)
        with connect(broker):  # what the first one imports is not its own
            time.sleep(SETTLE_SECONDS)
        before_mib = resident_mib(broker.pid)
        for _ in range(count):
            client = stack.enter_context(connect(broker))
            client.ask(API_VERSIONS, 3, _WHO)
        time.sleep(SETTLE_SECONDS)
        return (resident_mib(broker.pid) - before_mib) * MIB / count / 1024


_WHO: Final = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
