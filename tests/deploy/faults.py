"""A real fault of one broker for each alert that needs no other broker.

A fault is a generator of three scenes: it yields the addresses of metrics when all is well, then
when it has made the fault, and then when it has healed it.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Final

from odradek.broker.testing import RunningBroker, run_broker, run_secured_broker
from odradek.client.blocking import Admin, Producer
from odradek.client.errors import OdradekError
from odradek.client.types import TopicPartition
from tests.broker.metrics.scraping import observed
from tests.broker.test_full_disk import small_file_system
from tests.broker.test_hangup import Service
from tests.certificates import DAY, Authority
from tests.secured import TlsBroker

Scenes = Generator[Sequence[str], None, None]
Fault = Callable[[Path], Scenes]
TOPIC: Final = "t"
PLACE: Final = TopicPartition(TOPIC, 0)
GROUP: Final = "g"


def free_address() -> str:
    """Return an address for metrics that stays the same when the broker starts again."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@contextlib.contextmanager
def repeating(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Repeat a piece of work in a thread while the block runs. The event is set at its end."""
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.is_set():
            work(is_over)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def write(broker: RunningBroker, value: bytes = b"1") -> None:
    with Producer(broker.address) as producer:
        producer.send(TOPIC, value, partition=0).result()


def make_topic(broker: RunningBroker) -> None:
    with Admin(broker.address) as admin:
        admin.create_topic(TOPIC, partitions=1)


def broker_down(_folder: Path) -> Scenes:
    listen = free_address()
    with observed(metrics_listen=listen) as (broker, _):
        yield [listen]
        broker.kill()
        yield []
        broker.start()
        yield []


def logs_offline(folder: Path) -> Scenes:
    """A byte of a log is lost that a checkpoint says is on disk. `odradek log repair` heals it."""
    listen, data_dir = free_address(), folder / "data"
    with run_broker(data_dir=data_dir, config={"metrics.listen": listen}) as broker:
        make_topic(broker)
        write(broker)
        yield [listen]
        broker.stop()
        damaged = data_dir / f"{TOPIC}-0"
        (log,) = damaged.glob("*.log")
        os.truncate(log, log.stat().st_size - 1)
        broker.start()
        yield []
        broker.stop()
        command = [sys.executable, "-m", "odradek.broker", "log", "repair", str(damaged), "--cut"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        broker.start()
        yield []


def disk_full(folder: Path) -> Scenes:
    """Another program fills the disk."""
    listen = free_address()
    with small_file_system(folder) as disk:
        config = {"metrics.listen": listen, "log.segment.bytes": str(1 << 20)}
        with run_broker(data_dir=disk / "data", config=config):
            yield [listen]
            usage = os.statvfs(disk)
            ballast = disk / "ballast"
            left_bytes = usage.f_blocks * usage.f_frsize // 20
            ballast.write_bytes(bytes(usage.f_bavail * usage.f_frsize - left_bytes))
            yield []
            ballast.unlink()
            yield []


def loop_slow(_folder: Path) -> Scenes:
    """The process stands still for half a second again and again."""
    listen = free_address()
    with observed(metrics_listen=listen) as (broker, _):
        process = broker.process

        def stand_still(is_over: threading.Event) -> None:
            process.send_signal(signal.SIGSTOP)
            is_over.wait(0.5)
            process.send_signal(signal.SIGCONT)
            is_over.wait(0.5)

        yield [listen]
        with repeating(stand_still):
            yield []
        yield []


def fsync_slow(folder: Path) -> Scenes:
    """Fsyncs take 0.7 s."""
    listen, switch = free_address(), folder / "slow"

    class OnSlowDisk(RunningBroker):
        command = (sys.executable, "-m", "tests.deploy.slow_disk", str(switch), "serve")

    with run_broker(config={"metrics.listen": listen}, kind=OnSlowDisk) as broker:
        make_topic(broker)
        with repeating(lambda _: write(broker)):
            yield [listen]
            switch.touch()
            yield []
            switch.unlink()
            yield []


def old_transaction(_folder: Path) -> Scenes:
    listen = free_address()
    with observed(metrics_listen=listen) as (broker, _):
        make_topic(broker)
        yield [listen]
        with Producer(broker.address, transactional_id="idle") as idle, idle.transaction():
            idle.send(TOPIC, b"1").result()
            yield []
        yield []


def group_behind(_folder: Path) -> Scenes:
    listen = free_address()
    with observed(metrics_listen=listen) as (broker, _), Admin(broker.address) as admin:
        make_topic(broker)
        yield [listen]
        write(broker)
        admin.set_group_offsets(GROUP, {PLACE: 0})
        yield []
        admin.set_group_offsets(GROUP, {PLACE: 1})
        yield []


class TlsService(TlsBroker):
    """A broker with TLS that goes on at SIGHUP."""

    command = Service.command


def certificate_expires(folder: Path) -> Scenes:
    listen, authority = free_address(), Authority(folder)
    keystore = Path(authority.signed("broker", ends=30 * DAY).both_file)
    config = {"metrics.listen": listen, "ssl.keystore.location": str(keystore)}
    with run_broker(config=config, kind=TlsService) as broker:

        def renew(days: int) -> None:
            renewed = authority.signed("renewed", ends=days * DAY)
            keystore.write_text(renewed.key_pem + renewed.certificate_pem)
            broker.process.send_signal(signal.SIGHUP)

        yield [listen]
        renew(days=3)
        yield []
        renew(days=60)
        yield []


def failed_logins(_folder: Path) -> Scenes:
    """A client guesses passwords."""
    listen = free_address()
    config = {"metrics.listen": listen}
    with run_secured_broker({"bob": "secret"}, config=config) as broker:
        wrong = {**broker.options("bob"), "sasl_password": "guess"}

        def guess(_is_over: threading.Event) -> None:
            with contextlib.suppress(OdradekError), Admin(broker.address, **wrong) as admin:
                admin.list_topics()

        yield [listen]
        with repeating(guess):
            yield []
        yield []


OF_ONE_BROKER: Final[dict[str, Fault]] = {
    "OdradekBrokerDown": broker_down,
    "OdradekLogsOffline": logs_offline,
    "OdradekDiskFull": disk_full,
    "OdradekLoopSlow": loop_slow,
    "OdradekFsyncSlow": fsync_slow,
    "OdradekOldTransaction": old_transaction,
    "OdradekGroupBehind": group_behind,
    "OdradekCertificateExpires": certificate_expires,
    "OdradekFailedLogins": failed_logins,
}
