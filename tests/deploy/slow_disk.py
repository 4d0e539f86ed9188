"""A broker whose fsyncs take 0.7 s while a file exists, as those of a failing disk do.

python -m tests.deploy.slow_disk FILE serve --listen ...
"""

import os
import runpy
import sys
import time
from collections.abc import Callable
from typing import Final

DELAY_SECONDS: Final = 0.7


def slow(flush: Callable[[int], None], file: str) -> Callable[[int], None]:
    """Return a function that flushes, and returns after the delay if the file exists."""

    def flush_slowly(fd: int) -> None:
        flush(fd)
        if os.path.exists(file):
            time.sleep(DELAY_SECONDS)

    return flush_slowly


def main() -> None:
    file = sys.argv.pop(1)
    os.environ["ODRADEK_WITHOUT_C"] = "1"  # the threads in C do not call these functions
    # The broker looks them up when its modules are imported.
    os.fsync = slow(os.fsync, file)  # type: ignore[assignment]
    os.fdatasync = slow(os.fdatasync, file)  # type: ignore[assignment]
    runpy.run_module("odradek.broker", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
