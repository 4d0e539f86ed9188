"""Odradek with fsyncs that take at least 20 ms each, and a file that says when each began.

    python -m scripts.benchmarks.slow_fsyncs FILE serve --listen ...

See `waves.py`.
"""

import os
import runpy
import sys
import time
from collections.abc import Callable
from typing import Final

DELAY_SECONDS: Final = 0.020


def slow(flush: Callable[[int], None], out: int) -> Callable[[int], None]:
    """Return a function that writes a line to `out`, flushes, and returns after the delay."""

    def flush_slowly(fd: int) -> None:
        os.write(out, f"{time.monotonic()} {os.readlink(f'/proc/self/fd/{fd}')}\n".encode())
        flush(fd)
        time.sleep(DELAY_SECONDS)

    return flush_slowly


def main() -> None:
    file = sys.argv.pop(1)
    out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.environ["ODRADEK_WITHOUT_C"] = "1"  # the threads in C do not call these functions
    # The broker looks them up when its modules are imported.
    os.fsync = slow(os.fsync, out)  # type: ignore[assignment]
    os.fdatasync = slow(os.fdatasync, out)  # type: ignore[assignment]
    runpy.run_module("odradek.broker", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
