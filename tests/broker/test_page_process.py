"""The process of the page of `odradek serve --web`, when it cannot start."""

import socket
import sys

import pytest
import trio

from odradek.broker.config.addresses import Listener
from odradek.broker.page_process import PageProcess

PATIENCE_SECONDS = 60


async def test_a_page_that_cannot_start_is_a_line_in_the_log_and_its_port_is_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The error of the system ended the broker."""
    listeners = [Listener(host="127.0.0.1", port=9092)]
    page = PageProcess.bind("127.0.0.1:0", listeners)
    port = int(page.link.rstrip("/").rpartition(":")[2])
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with trio.fail_after(PATIENCE_SECONDS):
        await page.run(listeners)
    [line] = caplog.messages
    assert line.startswith("the page cannot be started: ")
    assert "/nowhere/python" in line
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
