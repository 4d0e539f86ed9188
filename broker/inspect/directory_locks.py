"""The lock of a data directory for a command, and errors of the system as sentences."""

import contextlib
from collections.abc import Iterator

import click

from odradek.broker.inspect.dump import check_format_of
from odradek.broker.process import LOCK_FILE
from odradek.broker.storage.disk import SystemDisk


@contextlib.contextmanager
def errors_of(directory: str) -> Iterator[None]:
    """Turn an error of the system into a sentence."""
    try:
        yield
    except BrokenPipeError:  # `| head`: click ends quietly
        raise
    except OSError as error:
        where = error.filename or directory
        raise click.ClickException(f"{where}: {error.strerror or error}.") from None


@contextlib.contextmanager
def locked(directory: str, *, is_unfinished: bool = False) -> Iterator[None]:
    """Lock a data directory that no broker may use meanwhile. Raises ClickException, OSError.

    `is_unfinished`: the caller is the command that makes the directory, or goes on with it.
    """
    try:
        lock = SystemDisk().lock(f"{directory}/{LOCK_FILE}")
    except BlockingIOError:
        raise click.ClickException(f"A broker uses {directory}; stop it first.") from None
    try:
        if not is_unfinished:
            check_format_of(directory)
        yield
    finally:
        lock.release()
