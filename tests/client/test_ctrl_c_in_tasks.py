"""Ctrl-C in programs of trio that use the client: it is a plain KeyboardInterrupt, at any moment.

The signal comes while the client's own tasks run. trio then raised KeyboardInterrupt in them, and
the program ended with a BaseExceptionGroup.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import pytest

from odradek.broker.testing import run_broker
from odradek.client.blocking import Admin, Consumer
from tests.client import ring_and_end
from tests.client.live import WAIT_MS, name_of
from tests.client.ring_and_end import MOMENTS, PROGRAMS
from tests.client.stay_and_end import HOUR_MS, options_of, settings
from tests.stories.looking import eventually


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    config = {**settings(HOUR_MS), "group.consumer.assignment.interval.ms": "0"}
    with run_broker(config=config) as broker:
        yield broker.address


def make_topic(address: str) -> str:
    topic = name_of("rings")
    with Admin(address) as admin:
        admin.create_topic(topic, partitions=4)
    return topic


@pytest.mark.parametrize("name", PROGRAMS)
def test_ctrl_c_ends_a_program_with_a_plain_keyboard_interrupt_wherever_it_comes(
    address: str, name: str
) -> None:
    topic = make_topic(address)
    ended = subprocess.run(
        [sys.executable, "-m", ring_and_end.__name__, address, topic, name],
        capture_output=True,
        text=True,
        timeout=2 * WAIT_MS / 1000,
        check=False,
    )
    said = ended.stdout.splitlines()
    assert said[-1:] == ["done"], ended.stderr
    ways = {line.rpartition(": ")[2] for line in said[:-1]}
    assert ways == {"KeyboardInterrupt"}, ended.stderr
    assert sum(line.startswith("at a line") for line in said) == MOMENTS
    LEFT_WELL[name](address, topic)


def member_has_left(protocol: str, address: str, topic: str) -> None:
    """Join, and get all partitions: sessions take an hour, so only leaving gives them free."""
    with Consumer(address, **options_of(topic, protocol)) as consumer:
        consumer.subscribe(topic)

        def owned() -> int:
            consumer.poll(50)
            return len(consumer.assignment())

        eventually(owned, 4)


def transaction_has_ended(address: str, topic: str) -> None:
    with Admin(address) as admin:
        assert admin.describe_transaction(topic).state in ("CompleteCommit", "CompleteAbort")


def nothing_is_left(address: str, topic: str) -> None:
    """Do nothing: the program holds nothing in the broker."""


LEFT_WELL: Final[dict[str, Callable[[str, str], None]]] = {
    "member of the new protocol": partial(member_has_left, "consumer"),
    "member of the classic protocol": partial(member_has_left, "classic"),
    "transactions": transaction_has_ended,
    "deliveries": nothing_is_left,
    "admin": nothing_is_left,
}
