"""The progress of a command that copies many bytes, on a terminal."""

import sys
import time
from types import TracebackType
from typing import Final, Self

import click

SECONDS: Final = 0.5
UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


class CopyProgress:
    """One line on the terminal that is written again now and then; nothing elsewhere."""

    def __init__(self, what: str, total_bytes: int) -> None:
        self._what = what
        self._total_bytes = total_bytes
        self._done_bytes = 0
        self._shown_at = time.monotonic()
        self._is_shown = False

    def add(self, count: int) -> None:
        self._done_bytes += count
        now = time.monotonic()
        if now - self._shown_at >= SECONDS and sys.stderr.isatty():
            self._shown_at, self._is_shown = now, True
            share = self._done_bytes * 100 // max(self._total_bytes, 1)
            done, total = in_bytes(self._done_bytes), in_bytes(self._total_bytes)
            click.echo(f"\r{self._what} {done} of {total} ({share}%)   ", nl=False, err=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_shown:
            click.echo(err=True)


def in_bytes(count: int) -> str:
    """Return a number of bytes for a person."""
    size: float = count
    for unit in UNITS:
        if size < 1024 or unit == UNITS[-1]:
            return f"{count} {unit}" if unit == UNITS[0] else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError(count)
