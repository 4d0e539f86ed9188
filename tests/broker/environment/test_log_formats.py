"""The log as JSON: every line is an object with what the line of text says, and nothing more."""

import io
import json
import logging
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.environment.log_lines import LINES, SECONDS, LimitedHandler
from odradek.broker.testing import run_broker, run_secured_broker
from odradek.client import OdradekError
from odradek.client.blocking import Admin
from odradek.protocol.log_formats import EXCEPTION_MAX_CHARACTERS, JsonLine, TextLine
from tests.broker.api.producing import until
from tests.broker.raw import RawClient
from tests.broker.test_hangup import Service

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"
MOMENT = 1_795_843_821.0424


class Log:
    """A log of JSON on a clock of the test's own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.written = io.StringIO()
        self.logger = logging.Logger("odradek.broker.some")
        handler = LimitedHandler(self.written, now=lambda: self.now)
        handler.setFormatter(JsonLine())
        self.logger.addHandler(handler)

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.written.getvalue().splitlines()]


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_line_is_an_object_with_the_parts_of_the_line(log: Log) -> None:
    record = log.logger.makeRecord(
        log.logger.name, logging.WARNING, "", 0, "%s is offline: %s", ("orders-0", "EIO"), None
    )
    record.created = MOMENT
    log.logger.handle(record)
    assert log.objects == [
        {
            "time": "2026-11-28T05:30:21.042Z",
            "level": "WARNING",
            "logger": "odradek.broker.some",
            "message": "orders-0 is offline: EIO",
            "cause": "%s is offline: %s",
        }
    ]
    line = TextLine().format(record)
    assert line.endswith(" WARNING odradek.broker.some: orders-0 is offline: EIO")


def test_the_names_that_a_call_gives_are_fields(log: Log) -> None:
    log.logger.info("closed", extra={"cause": "idle", "peer": "10.0.0.1:5", "bytes": 7})
    (found,) = log.objects
    assert (found["cause"], found["peer"], found["bytes"]) == ("idle", "10.0.0.1:5", 7)


def test_a_traceback_is_one_field(log: Log) -> None:
    try:
        raise ValueError("of ours")
    except ValueError:
        log.logger.exception("a bug")
    (found,) = log.objects
    assert found["message"] == "a bug"
    assert found["exception"].startswith("Traceback (most recent call last):\n")
    assert found["exception"].endswith("ValueError: of ours")


def test_a_long_traceback_keeps_its_end_in_a_line_that_docker_does_not_cut(log: Log) -> None:
    try:
        raise ValueError("x" * 3 * EXCEPTION_MAX_CHARACTERS + "the end")
    except ValueError:
        log.logger.exception("a bug")
    (found,) = log.objects
    assert found["exception"].endswith("the end")
    assert len(log.written.getvalue()) < 16 * 1024


def test_what_a_client_has_chosen_breaks_no_line(log: Log) -> None:
    name = 'a"b\n{"level": "CRITICAL"}\x1b[31m\ud800\u2028'
    log.logger.info("topic %s", name, extra={"topic": name})
    (found,) = log.objects
    assert found["message"] == 'topic a"b\\n{"level": "CRITICAL"}\\x1b[31m\\ud800\\u2028'
    assert found["topic"] == found["message"].removeprefix("topic ")


@pytest.mark.parametrize("character", ["\x1b", "\u00e9", "\U0001f600", '"'])
def test_no_name_makes_a_line_that_docker_cuts(log: Log, character: str) -> None:
    """A character is up to twelve bytes in JSON, and a piece of an object is none."""
    name = f"orders{character * 5_000}"
    try:
        raise ValueError(f"{name} at the end")
    except ValueError:
        log.logger.exception("group %s", name, extra={"transactional_id": name, "topic": name})
    assert len(log.written.getvalue()) <= 16 * 1024
    (found,) = log.objects
    assert found["message"].startswith("group orders")
    assert found["topic"].startswith("orders")
    assert found["exception"].endswith(" at the end")


def test_a_count_of_repeats_keeps_its_cause(log: Log) -> None:
    for number in range(LINES + 5):
        log.logger.info("client %d has gone", number)
    log.now = SECONDS
    log.logger.info("client %d has gone", 99)
    *first, last = log.objects[: LINES + 1]
    assert {each["cause"] for each in first} == {"client %d has gone"}
    assert "repeats" not in first[0]
    assert (last["cause"], last["repeats"]) == ("client %d has gone", 4)
    assert last["message"] == "client 24 has gone (and 4 more like this in the last 10 s)"


def documented_fields() -> set[str]:
    section = PAGE.read_text().partition("\n## The log\n")[2].partition("\n## ")[0]
    return {
        name
        for row in section.splitlines()
        if row.startswith("| `")
        for name in re.findall("`([a-z_]+)`", row.split("|")[1])
    }


def objects_of(written: str) -> list[dict[str, Any]]:
    """Return the objects of a log. A line that is none, or has an unknown field, fails the test."""
    found = [json.loads(line) for line in written.splitlines()]
    for each in found:
        assert {"time", "level", "logger", "message", "cause"} <= each.keys(), each
        assert each.keys() <= documented_fields(), each
    return found


def test_all_that_a_broker_writes_is_objects(tmp_path: Path) -> None:
    with run_broker(data_dir=tmp_path, config={"log.format": "json"}, kind=Service) as broker:
        with RawClient(broker) as client:
            client.send(b"GET / HTTP/1.1\r\n\r\n")
            assert client.is_closed_by_broker()
        broker.process.send_signal(signal.SIGHUP)
        until(lambda: broker.log, lambda log: "SIGHUP changes nothing: " in log)
        assert broker.stop() == 0
        found = objects_of(broker.log)
    peers = [each["peer"] for each in found if "a frame length of" in each["message"]]
    assert [peer.rpartition(":")[0] for peer in peers] == ["127.0.0.1"]
    assert found[-1]["message"] == "stopping, as SIGTERM asks for it"


def test_a_broker_that_cannot_serve_says_why_in_an_object(tmp_path: Path) -> None:
    words = ["--set", "log.format=json", "--data-dir", str(tmp_path / "file" / "below")]
    (tmp_path / "file").write_text("")
    ended = subprocess.run(
        [sys.executable, "-m", "odradek.broker", "serve", *words],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 1
    (found,) = objects_of(ended.stderr)
    assert (found["level"], found["cause"]) == ("CRITICAL", "cannot serve")
    assert "cannot be the data directory" in found["message"]


BROKEN = (
    "import odradek.broker.process as process\n"
    "async def broken(*_): raise AssertionError('an invariant')\n"
    "process.claim_format = broken\n"
    "import sys; sys.argv[:] = ['odradek', 'serve', *sys.argv[1:]]\n"
    "from odradek.broker.__main__ import main\n"
    "main()\n"
)


def test_the_error_that_ends_a_broker_is_an_object_with_its_traceback(tmp_path: Path) -> None:
    words = ["--set", "log.format=json", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    ended = subprocess.run(
        [sys.executable, "-c", BROKEN, *words], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode != 0
    why, end = objects_of(ended.stderr)
    assert why["message"] == "the broker stops, as an invariant is broken: an invariant"
    assert "AssertionError: an invariant" in end["exception"]


def test_a_refusal_by_access_control_names_its_parts_and_no_secret() -> None:
    users = {"admin": "admin-secret-7", "alice": "alice-secret-7"}
    settings = {"log.format": "json"}
    with run_secured_broker(users, super_users=["admin"], config=settings) as broker:
        with Admin(broker.address, **broker.options("alice")) as admin, pytest.raises(OdradekError):
            admin.delete_topics("orders")
        broker.stop()
        written = broker.log
    denied = [each for each in objects_of(written) if each["logger"] == "odradek.authorizer"]
    assert {
        "principal": "User:alice",
        "host": "127.0.0.1",
        "operation": "DELETE",
        "resource_type": "TOPIC",
        "resource": "orders",
    }.items() <= denied[0].items()
    assert "secret-7" not in written
