"""The command `odradek`: `serve` runs a broker; the others are clients, or look at files.

A user's mistake ends in one sentence and a status other than 0, never in a traceback. Modules are
imported by the command that needs them, so that each starts quickly.
"""

import importlib
import io
import os
import signal
import sys
from typing import Any, Final, TextIO

import click

from odradek import __version__

INTERRUPTED: Final = 130
OUTPUT: Final = "standard output"
UNKNOWN: Final = "No such command "
"""How click's error for a command that does not exist begins."""
NEAR: Final = 0.6
"""How much a command must resemble what was written, to be named."""

# command -> the module that has it, and its name there
ELSEWHERE: Final = {
    "serve": ("odradek.broker.commands.serve", "serve"),
    "ping": ("odradek.broker.commands.ping", "ping"),
    "cluster": ("odradek.client.cli.cluster", "cluster"),
    "acl": ("odradek.client.cli.acl", "acl"),
    "config": ("odradek.client.cli.config", "config"),
    "group": ("odradek.client.cli.group", "group"),
    "quota": ("odradek.client.cli.quota", "quota"),
    "topic": ("odradek.client.cli.topics", "topic"),
    "produce": ("odradek.client.cli.records", "produce"),
    "consume": ("odradek.client.cli.records", "consume"),
    "bench": ("odradek.client.cli.bench", "bench"),
    "spark": ("odradek.client.cli.spark", "spark"),
    "txn": ("odradek.client.cli.transactions", "txn"),
    "web": ("odradek.client.web.command", "web"),
    "user": ("odradek.broker.commands.user", "user"),
    "security": ("odradek.broker.commands.security", "security"),
    "log": ("odradek.broker.inspect.log_command", "log"),
    "storage": ("odradek.broker.inspect.storage_command", "storage"),
    "completion": ("odradek.broker.commands.completion", "completion"),
}
SERVICES: Final = frozenset({"serve", "web"})
"""What they print is for a person beside them: they also run without a standard output."""
# group of another package -> the module that has one more command of it, and its name there
JOINED: Final = {"cluster": ("odradek.broker.commands.adopt", "adopt_command")}


class Commands(click.Group):
    """A group whose commands are imported when they are named."""

    def main(self, *args: Any, **options: Any) -> Any:
        sys.stdout = _named_output(sys.stdout)
        try:
            return super().main(*args, **options)
        except OSError as error:
            if error.filename != OUTPUT:
                raise
            click.echo(f"Error: {error.filename}: {error.strerror}.", err=True)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # click would print "Aborted!", as if a transaction were meant
            ctx.exit(INTERRUPTED)
        except click.Abort as error:  # a question that was not answered with yes
            if isinstance(error.__context__, KeyboardInterrupt):
                ctx.exit(INTERRUPTED)
            raise click.ClickException("Nothing was done.") from None
        except click.UsageError as error:
            raise _with_the_nearest(error) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *ELSEWHERE]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        # Ctrl-C waits for the end of the import: inside it, Python may raise it as another error.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            found = _imported(*ELSEWHERE[cmd_name])
            if cmd_name in JOINED:
                assert isinstance(found, click.Group), found
                found.add_command(_imported(*JOINED[cmd_name]))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return found


def _imported(module: str, attribute: str) -> click.Command:
    found: object = getattr(importlib.import_module(module), attribute)
    assert isinstance(found, click.Command), found
    return found


def _show_version(context: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        from odradek.broker.environment import compiled, giving_way, ready_sockets
        from odradek.broker.storage import fsyncs

        found = (
            *(compiled.steps_in_c(), ready_sockets.receive_in_c()),
            *(fsyncs.is_possible(), giving_way.yields()),
        )
        parts = "compiled" if all(found) else "in Python"
        click.echo(f"odradek, version {__version__} ({_commit()}hot parts {parts})")
        context.exit()


def _commit() -> str:
    """Return words for the commit that a package was built from; a clone has git for that."""
    import importlib.resources

    stamp = importlib.resources.files("odradek").joinpath("commit.txt")
    return f"commit {stamp.read_text().strip()}, " if stamp.is_file() else ""


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    callback=_show_version,
    is_eager=True,
    help="Show the version and exit.",
)
@click.pass_context
def main(context: click.Context) -> None:
    """A small broker that speaks the Kafka protocol, with exactly-once at its heart."""
    if sys.__stdout__ is None and context.invoked_subcommand in SERVICES:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    # A transactional id may hold any text; what the terminal cannot show is printed escaped.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _with_the_nearest(error: click.UsageError) -> click.UsageError:
    """Return an error that also names the command that is meant, for one that does not exist.

    Newer versions of click name it by themselves, where commands are not imported late.
    """
    unknown = error.message.removeprefix(UNKNOWN)
    if unknown == error.message or error.ctx is None or getattr(error, "possibilities", None):
        return error
    import difflib  # not for each command

    assert isinstance(error.ctx.command, click.Group), error.ctx.command
    there = error.ctx.command.list_commands(error.ctx)
    near = difflib.get_close_matches(unknown.strip("'."), there, 1, NEAR)
    if not near:
        return error
    return click.UsageError(f"{error.message} Did you mean '{near[0]}'?", error.ctx)


class _RawOutput(io.FileIO):
    """Standard output whose errors name it: a full disk behind it is not that of a data directory.

    It raises one error only. Python flushes the rest at its end, and would fail a second time."""

    has_failed = False

    def write(self, data: Any) -> int:
        if self.has_failed:
            return len(data)
        try:
            return super().write(data)
        except OSError as error:
            self.has_failed = True
            error.filename = OUTPUT
            raise


def _named_output(output: TextIO | None) -> TextIO:
    """Return standard output with a name in its errors.

    `output` is None if it was closed: each write fails then. What is no file stays as it is.
    """
    if output is None:
        return _opened(os.open(os.devnull, os.O_RDONLY), "utf-8", is_unbuffered=False)
    if output is not sys.__stdout__ or not isinstance(output, io.TextIOWrapper):
        return output
    output.flush()
    return _opened(output.fileno(), output.encoding, is_unbuffered=output.write_through)


def _opened(fd: int, encoding: str, *, is_unbuffered: bool) -> TextIO:
    raw = _RawOutput(fd, "w", closefd=False)
    raw.name = OUTPUT
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=encoding,
        line_buffering=raw.isatty(),
        write_through=is_unbuffered,
    )
