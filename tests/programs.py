"""Programs that a test runs beside itself."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def running(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a program while the block runs. It does not outlive the block, however the block ends.

    `options` are those of `Popen`, whose own block would wait for a program that does not end when
    a test has failed.
    """
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()
