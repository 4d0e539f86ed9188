"""The password that a command takes: of a file, of the environment, or typed. Never an argument.

Arguments are seen by every user of the machine.
"""

import getpass
import os
import warnings
from collections.abc import Callable
from typing import IO, Final, ParamSpec, TypeVar

import click

from odradek.client.tls.secret_files import warning_about

P = ParamSpec("P")
R = TypeVar("R")

VARIABLE: Final = "ODRADEK_USER_PASSWORD"
"""Not the password of the client that connects, which is in `--command-config`."""


def password_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add the option `--password-file`."""
    return click.option(
        "--password-file",
        metavar="FILE",
        type=click.File(encoding="utf-8"),
        callback=_read,
        help="A file that has the password in its only line; - is standard input.  "
        f"[default: that of {VARIABLE}, or it is asked for]",
    )(command)


def _read(context: click.Context, option: click.Parameter, file: IO[str] | None) -> str:
    if file is None:
        return os.environ.get(VARIABLE, "")
    try:
        lines = file.read().splitlines()
    except UnicodeDecodeError:
        raise click.BadParameter("it is not UTF-8.", context, option) from None
    if len(lines) != 1 or not lines[0]:
        raise click.BadParameter("it has not one line, with the password.", context, option)
    warning = warning_about(file.name)
    if warning is not None:
        click.echo(f"Warning: {warning}", err=True)
    return str(lines[0])


def asked_unless(given: str) -> str:
    """Return the password that was given; otherwise ask for it twice. Raises click.Abort.

    Without a terminal it is not asked for: getpass would read a line of standard input, and warn.
    """
    if given:
        return given
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", getpass.GetPassWarning)
            typed: str = click.prompt(
                "Password", hide_input=True, confirmation_prompt=True, err=True
            )
    except getpass.GetPassWarning:
        raise click.UsageError(
            "There is no terminal to ask for the password: give --password-file (- is standard "
            f"input) or set {VARIABLE}."
        ) from None
    return typed
