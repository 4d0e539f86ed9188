"""`odradek web` as a process of its own, and what it sends."""

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.programs import running

PATIENCE_S: Final = 60.0
LINK: Final = re.compile(r"at (https?://\S+?):(\d+)/")

Condition = Callable[[dict[tuple[str, str], Any]], object]


class ServedPage:
    """A page that is served."""

    def __init__(self, link: str, process: "subprocess.Popen[str]", said: str = "") -> None:
        self.link = link
        self.process = process
        self.said = said
        """The line with the link."""

    def rows_until(self, is_there: Condition) -> Any:
        return rows_until(self.link, is_there)


def rows_until(link: str, is_there: Condition) -> Any:
    """Read the stream of a page until a condition holds for the rows; return what it returns."""
    deadline = time.monotonic() + PATIENCE_S
    rows: dict[tuple[str, str], Any] = {}
    with urllib.request.urlopen(f"{link}events", timeout=PATIENCE_S) as stream:
        for line in stream:
            assert time.monotonic() < deadline, rows
            if line.startswith(b"data: "):
                for section, key, value in json.loads(line[6:])["rows"]:
                    rows[section, key] = value
                    if value is None:
                        del rows[section, key]
            if rows and (found := is_there(rows)):
                return found
    raise AssertionError(f"the stream has ended: {rows}")


@contextmanager
def served_page(bootstrap: str, *options: str) -> Iterator[ServedPage]:
    """Serve the page of a broker while the block runs."""
    command = [sys.executable, "-m", "odradek.broker", "web", "--bootstrap", bootstrap]
    with running(
        [*command, "--listen", "127.0.0.1:0", *options], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = LINK.search(said)
        assert found is not None, said
        yield ServedPage(f"{found[1]}:{found[2]}/", process, said)
