"""The process of the page of `odradek serve --web`: its lines, its end, a start that fails."""

import socket
import sys
from pathlib import Path

import pytest
import trio

from odradek.broker.config.addresses import Listener
from odradek.broker.page_process import PageProcess

PATIENCE_SECONDS = 60
LISTENERS = [Listener(host="127.0.0.1", port=9092)]


async def test_a_page_that_cannot_start_is_a_line_in_the_log_and_its_port_is_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The error of the system ended the broker."""
    page = PageProcess.bind("127.0.0.1:0", LISTENERS)
    port = int(page.link.rstrip("/").rpartition(":")[2])
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with trio.fail_after(PATIENCE_SECONDS):
        await page.run(LISTENERS)
    [line] = caplog.messages
    assert line.startswith("the page cannot be started: ")
    assert "/nowhere/python" in line
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)


async def test_what_a_page_writes_is_lines_of_the_log_of_the_broker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """With log.format=json its lines were no objects."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho first >&2\nprintf 'and last' >&2\nexit 3\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    with trio.fail_after(PATIENCE_SECONDS):
        await PageProcess.bind("127.0.0.1:0", LISTENERS).run(LISTENERS)
    assert caplog.messages == [
        "the page: first",
        "the page: and last",
        "the page has ended with status 3",
    ]
