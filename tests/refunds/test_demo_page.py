"""The page of the demo: it stays until a key is pressed, where there is somebody to press one."""

import contextlib
import os
import pty
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

import pytest

from scripts.refunds.access import OPEN, give_rights, run_secured
from scripts.refunds.page import LINK, run_page
from tests.client.web.pages import rows_until
from tests.programs import running

SECTIONS = ("transactions", "pins", "cluster", "groups", "access")
SMALL_DEMO = """
import sys
from pathlib import Path
from rich.console import Console
from scripts.refunds.chaos import SCALE, ZOMBIE, Strike
from scripts.refunds.demo import Plan, run_on_one_node

strikes = [Strike(0.1, SCALE, 2), Strike(0.3, ZOMBIE, 1, after=3)]
plan = Plan(
    seed=1,
    limit=6_000,
    slice_records=100,
    session_timeout_ms=None,
    strikes=strikes,
    place=Path(sys.argv[1]),
)
with_page = sys.argv[2] == "page"
run_on_one_node(
    Console(width=200), plan, quick=True, with_spark=False, secure=False, with_page=with_page
)
"""
WAIT_FOR_A_KEY = """
from scripts.refunds.page import has_keyboard, wait_key
if has_keyboard():
    print("it waits", flush=True)
    wait_key()
print("it is over")
"""
IN_THE_BACKGROUND = f"""
import fcntl, os, subprocess, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY)
subprocess.run([sys.executable, "-c", {WAIT_FOR_A_KEY!r}], process_group=0, check=True)
"""


def line_with(lines: IO[str], text: str) -> str:
    """Read lines up to the first one with a text."""
    seen = []
    for line in lines:
        seen.append(line)
        if text in line:
            return line
    raise AssertionError(f"{text!r} is not in {seen}")


def link_in(line: str) -> str:
    found = LINK.search(line)
    assert found is not None, line
    return found[0]


def press_until_end(keyboard: int, process: "subprocess.Popen[str]") -> None:
    """Press a key until a process ends: one that is pressed before it waits does not count."""
    for _ in range(1_000):
        os.write(keyboard, b"q")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
            return
    raise AssertionError("no key ends it")


@pytest.mark.slow
def test_the_page_of_the_demo_is_there_until_a_key_is_pressed(tmp_path: Path) -> None:
    keyboard, terminal = pty.openpty()
    try:
        os.write(keyboard, b"\n")  # somebody is impatient; only a key after the end counts
        command = [sys.executable, "-c", SMALL_DEMO, str(tmp_path), "page"]
        with running(command, stdin=terminal, stdout=subprocess.PIPE) as demo:
            assert demo.stdout is not None
            link = link_in(line_with(demo.stdout, "live at"))
            assert link_in(line_with(demo.stdout, "stays until a key is pressed")) == link
            rows_until(link, lambda rows: rows.get(("group", "refunds")))
            assert demo.poll() is None
            press_until_end(keyboard, demo)
            assert demo.returncode == 0
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(link, timeout=60)
    finally:
        os.close(keyboard)
        os.close(terminal)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["page", "no page"])
def test_without_a_terminal_the_demo_ends_by_itself(tmp_path: Path, page: str) -> None:
    command = [sys.executable, "-c", SMALL_DEMO, str(tmp_path), page]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    assert ran.returncode == 0, ran
    assert (b"live at http://127.0.0.1:" in ran.stdout) == (page == "page")
    assert b"until a key is pressed" not in ran.stdout


def test_one_key_is_enough_and_needs_no_return() -> None:
    keyboard, terminal = pty.openpty()
    try:
        command = [sys.executable, "-c", WAIT_FOR_A_KEY]
        with running(command, stdin=terminal, stdout=subprocess.PIPE) as waiting:
            assert waiting.stdout is not None
            line_with(waiting.stdout, "it waits")
            press_until_end(keyboard, waiting)
            assert waiting.stdout.read() == "it is over\n"
    finally:
        os.close(keyboard)
        os.close(terminal)


@pytest.mark.parametrize("stdin", [subprocess.DEVNULL, subprocess.PIPE])
def test_nobody_waits_for_a_key_without_a_terminal(stdin: int) -> None:
    command = [sys.executable, "-c", WAIT_FOR_A_KEY]
    with running(command, stdin=stdin, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read() == "it is over\n"


def test_nobody_waits_for_a_key_in_the_background_of_a_terminal() -> None:
    keyboard, terminal = pty.openpty()
    try:
        command = [sys.executable, "-c", IN_THE_BACKGROUND]
        with running(command, stdin=terminal, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.read() == "it is over\n"
            assert process.wait(60) == 0
    finally:
        os.close(keyboard)
        os.close(terminal)


@pytest.mark.slow
def test_the_user_of_the_page_has_rights_that_are_enough_for_every_section(tmp_path: Path) -> None:
    with run_secured(tmp_path, {}) as (broker, access):
        give_rights(broker.address, access)
        with run_page(tmp_path, broker.address, access) as link:
            rows_until(
                link,
                lambda rows: (
                    all(rows.get(("status", each), {}).get("is_well") for each in SECTIONS)
                    and not [key for section, key in rows if section == "refused"]
                ),
            )


def test_a_page_that_does_not_start_is_one_sentence_with_its_reason(tmp_path: Path) -> None:
    with (
        pytest.raises(SystemExit, match=r"demo: the page has not started: .*no port"),
        run_page(tmp_path, "no port", OPEN),
    ):
        pass
