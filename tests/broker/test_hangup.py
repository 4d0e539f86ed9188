"""SIGHUP: the end of a terminal stops a broker in good order; a service goes on."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from odradek.broker.testing import RunningBroker, run_broker
from tests.broker.api.producing import until
from tests.broker.asks import create_topic
from tests.broker.raw import RawClient

CLEAN: Final = "clean-shutdown"
SESSION: Final = "import os, sys, signal, fcntl, termios\nos.setsid()\n"
TERMINAL: Final = (
    "os.dup2(os.open(os.environ['TERMINAL'], os.O_RDWR), 2)\nfcntl.ioctl(2, termios.TIOCSCTTY, 0)\n"
)
NOHUP: Final = "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
SERVE: Final = (
    "words = [sys.executable, '-m', 'odradek.broker', 'serve', *sys.argv[1:]]\n"
    "os.execv(words[0], words)\n"
)


class Service(RunningBroker):
    """A broker that has no terminal."""

    command = (sys.executable, "-c", SESSION + SERVE)


class InTerminal(RunningBroker):
    """A broker that was started in the terminal `TERMINAL`, and logs to it."""

    command = (sys.executable, "-c", SESSION + TERMINAL + SERVE)


class Nohup(RunningBroker):
    """A broker that was started so under nohup."""

    command = (sys.executable, "-c", SESSION + TERMINAL + NOHUP + SERVE)


@pytest.fixture
def terminal() -> Iterator[tuple[int, str]]:
    """The other end of a terminal, and its name."""
    master, slave = os.openpty()
    name = os.ttyname(slave)
    os.close(slave)
    yield master, name
    try:
        os.close(master)
    except OSError:
        assert not os.path.exists(name), "the test has closed it"


def test_a_closed_terminal_stops_the_broker_in_good_order(
    tmp_path: Path, terminal: tuple[int, str]
) -> None:
    master, name = terminal
    with run_broker(data_dir=tmp_path, environment={"TERMINAL": name}, kind=InTerminal) as broker:
        with RawClient(broker) as client:
            assert create_topic(client, "t").error_code == 0
        assert not (tmp_path / CLEAN).exists()
        os.close(master)
        assert broker.wait() == 0
    assert (tmp_path / CLEAN).exists()


def test_a_service_goes_on_at_sighup(tmp_path: Path) -> None:
    with run_broker(data_dir=tmp_path, kind=Service) as broker:
        broker.process.send_signal(signal.SIGHUP)
        until(lambda: broker.log, lambda log: "SIGHUP changes nothing: " in log)
        with RawClient(broker) as client:
            assert create_topic(client, "t").error_code == 0
        assert broker.stop() == 0
        assert "stopping, as SIGTERM asks for it" in broker.log


def test_under_nohup_a_closed_terminal_is_ignored(
    tmp_path: Path, terminal: tuple[int, str]
) -> None:
    master, name = terminal
    with run_broker(data_dir=tmp_path, environment={"TERMINAL": name}, kind=Nohup) as broker:
        os.close(master)
        with RawClient(broker) as client:
            assert create_topic(client, "t").error_code == 0
        assert broker.stop() == 0
