"""The service manager is notified of what a broker does, and of a loop that turns."""

import contextlib
import os
import secrets
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
import trio
import trio.testing

from odradek.broker.environment import service_manager
from odradek.broker.environment.service_manager import (
    EXTEND_EVERY_SECONDS,
    EXTENSION_SECONDS,
    SEND_SECONDS,
    ServiceManager,
)
from odradek.broker.testing import BrokerDidNotStart, run_broker
from tests.broker.asks import create_topic
from tests.broker.raw import RawClient
from tests.broker.test_hangup import Service

SECONDS: Final = 120.0
WATCHDOG_SECONDS: Final = 0.2
EXTENSION: Final = f"EXTEND_TIMEOUT_USEC={int(EXTENSION_SECONDS)}000000"


class Manager:
    """The socket of a service manager."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"\0{address[1:]}" if address[0] == "@" else address)
        self.received: list[list[str]] = []

    def receive(self, seconds: float = SECONDS) -> list[str] | None:
        """Return the lines of the next message; None if there is none for so long."""
        readable, _, _ = select.select([self.socket], [], [], seconds)
        if not readable:
            return None
        lines = self.socket.recv(4096).decode().split("\n")
        self.received.append(lines)
        return lines

    def receive_until(self, line: str) -> list[str]:
        """Return the next message with a line."""
        while True:
            lines = self.receive()
            assert lines is not None, f"{line} is not sent: {self.received}"
            if line in lines:
                return lines

    def fill(self) -> None:
        """Send messages until there is no room for another one."""
        with contextlib.suppress(BlockingIOError):
            while True:
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                    sender.setblocking(False)
                    sender.sendto(b"full", self.socket.getsockname())

    def receive_all(self) -> list[list[str]]:
        """Return the messages that have arrived."""
        found = []
        while (lines := self.receive(0)) is not None:
            found.append(lines)
        return found


@pytest.fixture(params=["a file", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    if request.param == "abstract":
        if sys.platform != "linux":
            pytest.skip("only Linux has abstract addresses")
        made = Manager(f"@odradek-test-{secrets.token_hex(8)}")
    else:
        made = Manager(str(tmp_path / "notify"))
    with contextlib.closing(made.socket):
        yield made


def environment(manager: Manager, **others: str) -> Mapping[str, str]:
    return {"NOTIFY_SOCKET": manager.address, **others}


def test_a_broker_is_ready_when_it_answers(manager: Manager, tmp_path: Path) -> None:
    with run_broker(data_dir=tmp_path / "data", environment=environment(manager)) as broker:
        ready = manager.receive_until("READY=1")
        with RawClient(broker) as client:
            assert create_topic(client, "t").error_code == 0
        assert ready[1].startswith(f"STATUS=odradek serves {broker.address}, data in ")
        assert manager.received[:2] == [["STATUS=starting"], [EXTENSION]]
        assert broker.stop() == 0
    rest = manager.receive_all()
    assert rest == [["STOPPING=1", "STATUS=stopping: logs are flushed"]]


def test_a_broker_that_cannot_serve_is_never_ready(manager: Manager) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with (
            pytest.raises(BrokerDidNotStart),
            run_broker(port=port, environment=environment(manager)),
        ):
            pass
    assert ["STATUS=starting"] in manager.receive_all()
    assert not [lines for lines in manager.received if "READY=1" in lines]


def test_a_reload_is_begun_and_ended(manager: Manager, tmp_path: Path) -> None:
    with run_broker(
        data_dir=tmp_path / "data", environment=environment(manager), kind=Service
    ) as broker:
        ready = manager.receive_until("READY=1")
        before = time.monotonic_ns() // 1000
        broker.process.send_signal(signal.SIGHUP)
        reloading = manager.receive()
        assert reloading is not None
        name, _, moment = reloading[1].partition("=")
        assert (reloading[0], name) == ("RELOADING=1", "MONOTONIC_USEC")
        assert before <= int(moment) <= time.monotonic_ns() // 1000
        assert manager.receive() == ready


def test_a_loop_that_stands_sends_nothing(manager: Manager, tmp_path: Path) -> None:
    usec = str(int(WATCHDOG_SECONDS * 1_000_000))
    with run_broker(
        data_dir=tmp_path / "data", environment=environment(manager, WATCHDOG_USEC=usec)
    ) as broker:
        manager.receive_until("READY=1")
        manager.receive_until("WATCHDOG=1")
        manager.receive_until("WATCHDOG=1")
        broker.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, broker.process.pid, os.WSTOPPED | os.WNOWAIT)
        manager.receive_all()
        assert manager.receive(4 * WATCHDOG_SECONDS) is None
        broker.process.send_signal(signal.SIGCONT)
        manager.receive_until("WATCHDOG=1")


async def test_a_loop_that_turns_sends_twice_in_the_time_of_the_watchdog(
    manager: Manager, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    found = ServiceManager.of_environment(
        environment(manager, WATCHDOG_USEC="30000000", WATCHDOG_PID="7"), process_id=7
    )
    started = trio.Event()
    started.set()
    nursery.start_soon(found.run, started, trio.Event())
    await trio.sleep(61)
    assert len([lines for lines in manager.receive_all() if lines == ["WATCHDOG=1"]]) == 5
    nursery.cancel_scope.cancel()


async def test_the_watchdog_of_another_process_gets_nothing(
    manager: Manager, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    found = ServiceManager.of_environment(
        environment(manager, WATCHDOG_USEC="30000000", WATCHDOG_PID="7"), process_id=8
    )
    started = trio.Event()
    started.set()
    nursery.start_soon(found.run, started, trio.Event())
    await trio.sleep(61)
    assert manager.receive_all() == [["STATUS=starting"], ["READY=1", "STATUS="]]
    nursery.cancel_scope.cancel()


async def test_a_long_start_asks_for_more_time(
    manager: Manager, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    found = ServiceManager.of_environment(environment(manager), process_id=7)
    nursery.start_soon(found.run, trio.Event(), trio.Event())
    await trio.sleep(3.5 * EXTEND_EVERY_SECONDS)
    assert manager.receive_all() == [["STATUS=starting"], *[[EXTENSION]] * 4]
    nursery.cancel_scope.cancel()


async def test_a_reload_before_the_start_claims_nothing(manager: Manager) -> None:
    found = ServiceManager.of_environment(environment(manager), process_id=7)
    async with found.reloading():
        pass
    assert manager.receive_all() == []


async def test_without_a_manager_nothing_is_sent_and_nothing_fails() -> None:
    found = ServiceManager.of_environment({"WATCHDOG_USEC": "1000"}, process_id=7)
    started, stop = trio.Event(), trio.Event()
    started.set()
    stop.set()
    with trio.fail_after(SECONDS):
        await found.run(started, stop)


@pytest.mark.parametrize("address", ["vsock:2:1234", "notify"])
async def test_an_address_that_is_not_known_is_named_in_the_log(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    ServiceManager.of_environment({"NOTIFY_SOCKET": address}, process_id=7)
    assert caplog.messages == [
        f"NOTIFY_SOCKET={address} is no path and no abstract address: the service manager is not "
        "notified"
    ]


async def test_a_manager_that_is_not_there_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = ServiceManager(str(tmp_path / "gone"))
    started, stop = trio.Event(), trio.Event()
    started.set()
    stop.set()
    await found.run(started, stop)
    assert caplog.messages[0].startswith(
        f"the service manager at {tmp_path / 'gone'} cannot be notified: "
    )
    assert caplog.records[0].name == service_manager.__name__


async def test_a_manager_that_reads_nothing_holds_nothing_up(
    manager: Manager, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    """The loop tried to send at each turn, and SIGTERM was not read until a reload was told."""
    manager.fill()
    found = ServiceManager.of_environment(environment(manager), process_id=7)
    started, stop = trio.Event(), trio.Event()
    started.set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.run, started, stop)
        await trio.sleep(3 * SEND_SECONDS)
        before = trio.current_time()
        async with found.reloading():
            assert trio.current_time() - before <= SEND_SECONDS
        assert trio.current_time() - before <= 2 * SEND_SECONDS
        stop.set()
    sentence = f"the service manager at {manager.address} has had no room for a message for 5 s"
    assert caplog.messages == [sentence] * 5
    assert {each[0] for each in manager.receive_all()} == {"full"}
