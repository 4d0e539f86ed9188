"""The page beside the broker of the demo: `odradek web`, which stays until a key is pressed."""

import os
import re
import subprocess
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from odradek.broker.page_process import OF_THE_USER
from scripts.refunds.access import PAGE, Access

LINK: Final = re.compile(r"https?://\S+/")
STDIN: Final = 0


@contextmanager
def run_page(place: Path, bootstrap: str, access: Access) -> Iterator[str]:
    """Serve the page of a broker while the block runs. Yield its link."""
    log = place / "page.log"
    command = [
        *(sys.executable, "-m", "odradek.broker", "web", "--until-stdin-ends"),
        *("--bootstrap", bootstrap, "--listen", "127.0.0.1:0", *access.words(PAGE)),
    ]
    environment = {name: value for name, value in os.environ.items() if name not in OF_THE_USER}
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            found = LINK.search(process.stdout.readline())
            if found is None:
                why = log.read_text().strip() or "see --no-web"
                raise SystemExit(f"demo: the page has not started: {why}")
            yield found[0]
        finally:
            process.kill()


def has_keyboard() -> bool:
    """Return True if standard input is a terminal, and this process may read it."""
    if not os.isatty(STDIN):
        return False
    try:
        return os.tcgetpgrp(STDIN) == os.getpgrp()
    except OSError:  # not the terminal of this session, so nobody stops a reader in the background
        return True


def wait_key() -> None:
    """Wait until a key is pressed that was not pressed before."""
    before = termios.tcgetattr(STDIN)
    tty.setcbreak(STDIN)
    try:
        os.read(STDIN, 1)
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)
