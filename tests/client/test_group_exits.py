"""Members of a group in processes that end in every way, with each of the three clients."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from odradek.broker.testing import run_broker
from odradek.client.blocking import Admin, Consumer
from tests.client import stay_and_end
from tests.client.live import WAIT_MS, name_of
from tests.client.stay_and_end import HOUR_MS, KINDS, SESSION_MS, WAYS, options_of, settings
from tests.programs import running
from tests.stories.looking import eventually

PROTOCOLS: Final = ("consumer", "classic")
ENDS: Final = [
    *(("consumer", way) for way in WAYS),
    ("classic", "signal"),
    *(pytest.param("classic", way, marks=pytest.mark.minutes) for way in WAYS if way != "signal"),
]
"""Leaving depends on the protocol, and on the way, but hardly on both together."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with run_broker(config=settings(HOUR_MS)) as broker:
        yield broker.address


@pytest.fixture(scope="module")
def impatient_address() -> Iterator[str]:
    """The address of a broker whose sessions of the new protocol are short."""
    with run_broker(config=settings(SESSION_MS)) as broker:
        yield broker.address


def make_topic(address: str) -> str:
    topic = name_of("exits")
    with Admin(address) as admin:
        admin.create_topic(topic, partitions=4)
    return topic


@contextmanager
def a_member(
    address: str, topic: str, kind: str, way: str, protocol: str, session_ms: int
) -> Iterator[subprocess.Popen[str]]:
    """Yield the process of a member that owns all partitions."""
    words = [address, topic, kind, way, protocol, str(session_ms)]
    command = [sys.executable, "-m", stay_and_end.__name__, *words]
    with running(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "joined 4\n"
        yield process


@contextmanager
def heir(address: str, topic: str, protocol: str) -> Iterator[Consumer]:
    """Yield another member, which learns of a rebalance at once."""
    with Consumer(address, **options_of(topic, protocol)) as consumer:
        consumer.subscribe(topic)
        yield consumer


def owned_by(consumer: Consumer) -> int:
    consumer.poll(50)
    return len(consumer.assignment())


@pytest.mark.parametrize(("protocol", "way"), ENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_ends_leaves_its_group(
    address: str, kind: str, way: str, protocol: str
) -> None:
    """With an hour's session, so that only leaving can end the membership."""
    topic = make_topic(address)
    with a_member(address, topic, kind, way, protocol, HOUR_MS) as process:
        if way == "signal":
            process.send_signal(signal.SIGINT)
        process.wait(WAIT_MS / 1000)
    with heir(address, topic, protocol) as consumer:
        eventually(lambda: owned_by(consumer), 4)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_partitions_of_a_killed_process_move_after_its_session(
    impatient_address: str, kind: str, protocol: str
) -> None:
    topic = make_topic(impatient_address)
    with (
        a_member(impatient_address, topic, kind, "killed", protocol, SESSION_MS) as process,
        heir(impatient_address, topic, protocol) as consumer,
    ):
        eventually(lambda: owned_by(consumer), 2)
        process.kill()
        eventually(lambda: owned_by(consumer), 4)
