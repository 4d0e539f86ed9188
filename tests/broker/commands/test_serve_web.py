"""`odradek serve --web`: a page beside the broker, that ends with it."""

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pytest

from odradek.broker.testing import START_SECONDS
from odradek.client.blocking import Producer
from tests.client.web.pages import ServedPage
from tests.programs import running

pytestmark = pytest.mark.slow

SERVE: Final = (sys.executable, "-m", "odradek.broker", "serve", "--ephemeral")
STARTED: Final = re.compile(r"serves (\S+),.*; page at (http://\S+)$")


@contextmanager
def serving(*options: str) -> Iterator[tuple[str, ServedPage]]:
    """Run a broker with a page. Return its address and the page."""
    command = [*SERVE, "--listen", "127.0.0.1:0", *options]
    with running(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        found = STARTED.search(process.stdout.readline().strip())
        assert found is not None
        yield found[1], ServedPage(found[2], process)
        process.send_signal(signal.SIGTERM)
        process.wait(START_SECONDS)


def is_served(page: ServedPage) -> bool:
    host, _, port = page.link.removeprefix("http://").rstrip("/").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=START_SECONDS).close()
    except OSError:
        return False
    return True


def test_the_link_of_the_start_up_line_shows_the_transactions_of_the_broker() -> None:
    with serving("--web", "127.0.0.1:0") as (address, page):
        with urllib.request.urlopen(page.link, timeout=START_SECONDS) as answer:
            assert b"<title>Odradek</title>" in answer.read()
        with Producer(address, transactional_id="first hour"):
            page.rows_until(lambda rows: rows.get(("lane", "first hour")))
    assert not is_served(page)


def test_the_page_ends_with_a_broker_that_is_killed() -> None:
    with serving("--web", "127.0.0.1:0") as (_, page):
        page.rows_until(lambda rows: rows.get(("cluster", "")))
        page.process.kill()
        page.process.wait()
        while is_served(page):  # until it has seen the end of its standard input
            pass


def test_without_a_value_the_page_is_at_the_usual_place() -> None:
    ran = subprocess.run([*SERVE, "--web", "--help"], capture_output=True, text=True, timeout=60)
    assert "[without a value: 127.0.0.1:8080]" in " ".join(ran.stdout.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--web", "8080"], "--web takes HOST:PORT, not '8080'."),
        (["--web", "0.0.0.0:0"], "--web serves this machine only, and others reach '0.0.0.0'"),
        (
            ["--listen", "SASL_PLAINTEXT://127.0.0.1:0", "--web", "127.0.0.1:0"],
            "--web needs a listener without TLS and passwords",
        ),
    ],
)
def test_a_page_that_cannot_be_served_is_refused_before_anything_is_done(
    options: Sequence[str], said: str
) -> None:
    ran = subprocess.run([*SERVE, *options], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stdout == ""


def test_a_port_that_is_taken_is_refused_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [*SERVE, "--listen", "127.0.0.1:0", "--web", where]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.stderr == f"Error: --web: {where} cannot be listened on: Address already in use.\n"
