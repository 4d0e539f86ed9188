"""The common parts of the commands: options, error messages, tables and JSON lines."""

import functools
import json
import logging
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import nan
from pathlib import Path
from typing import IO, Any, Final, NoReturn, ParamSpec, TypeVar

import click

from odradek.client.blocking import Admin
from odradek.client.cli.tables import laid_out
from odradek.client.config import ClientOptions
from odradek.client.errors import OdradekError, Refused
from odradek.client.journal import TOPIC_CREATED
from odradek.client.types import DEFAULT_BOOTSTRAP, TopicDescription, TopicPartition
from odradek.protocol import quantities
from odradek.protocol.errors import ErrorCode
from odradek.protocol.quantities import as_number

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

DEFAULT_TIMEOUT_S: Final = 10.0
FIRST_CONNECT_S: Final = 2.0
"""With the start of Python, a command reports a broker that is down within three seconds."""
APPEARS_S: Final = 1.0
"""The time that a command waits for a topic or a broker that is not there. It may be new."""
LOOK_S: Final = 0.1
OF_FILE: Final = "odradek.client.options"
"""The key of a click context under which it keeps what `--command-config` has given."""
NOT_THERE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.BROKER_ID_NOT_REGISTERED)
KILLED_BY: Final = 128
"""What a shell adds to the signal that has killed a process, for its exit status."""
ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
SECONDS_MAX: Final = 10**9
"""Thirty years. In milliseconds it fits into every clock and every request."""
INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
"""The largest number of an INT64 field of a request."""


class Seconds(click.FloatRange):
    """A number of seconds, at least `min`, or a duration such as 5m.

    `nan` and `inf`, which Python accepts, are refused.
    """

    def __init__(self, min: float) -> None:
        super().__init__(min=min, max=SECONDS_MAX)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            given = quantities.seconds(value) if isinstance(value, str) else None
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        if given is None:
            try:
                given = float(value)
            except ValueError:
                given = nan
        if given != given:
            self.fail(f"{value!r} is no number of seconds, nor a duration such as 5m.", param, ctx)
        seconds: float = super().convert(given, param, ctx)
        return seconds


class PartitionName(click.ParamType):  # type: ignore[type-arg]  # generic only in the stubs
    """A partition on the command line: the topic, a hyphen or a colon, the number."""

    name = "partition"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> TopicPartition:
        if isinstance(value, TopicPartition):
            return value
        topic, mark, number = str(value).rpartition(":" if ":" in str(value) else "-")
        if not mark or not topic or not (number.isascii() and number.isdigit()):
            self.fail(f"{value!r} is not TOPIC-PARTITION, as in ledger-0.", param, ctx)
        return TopicPartition(topic, int(number))


class CommandError(click.ClickException):
    """An error that ends a command: a sentence on standard error, with --json a JSON object."""

    def __init__(self, message: str, code: ErrorCode | None, as_json: bool) -> None:
        super().__init__(message)
        self._code = code
        self._as_json = as_json

    def show(self, file: IO[Any] | None = None) -> None:
        if not self._as_json:
            super().show(file)
            return
        code = None if self._code is None else self._code.name
        click.echo(json_line({"error": self.message, "code": code}), file=file, err=file is None)


def reports_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Make a command print the client's errors as one sentence, and end if its pipe is closed."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        # The error has all that the client logs before it.
        logging.getLogger("odradek.client").addHandler(logging.NullHandler())
        as_json = bool(kwargs.get("as_json"))
        try:
            with _left_by_signals():
                return command(*args, **kwargs)
        except BrokenPipeError:
            # Python would complain again when it flushes standard output at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except UnicodeEncodeError as error:
            raise CommandError(f"{error.object!r} is not UTF-8.", None, as_json) from None
        except (OdradekError, ValueError, OSError) as error:
            code = error.code if isinstance(error, OdradekError) else None
            raise CommandError(sentence(_said(error)), code, as_json) from None

    return run


def _said(error: Exception) -> str:
    """Return the words of an error. A command has no file open that an OSError would not name."""
    if isinstance(error, OSError) and error.strerror:
        if error.filename is None:
            return f"standard input or output failed: {error.strerror}"
        if error.filename == getattr(sys.stdout, "name", None):
            return f"{error.filename}: {error.strerror}"
    return str(error)


@contextmanager
def _left_by_signals() -> Iterator[None]:
    """End a command at SIGTERM as at Ctrl-C: it leaves its group, and aborts its transaction.

    The same for SIGHUP, when the terminal is closed. Under nohup it stays ignored.
    """
    before = {number: signal.getsignal(number) for number in ENDING}
    wanted = [number for number in ENDING if before[number] is not signal.SIG_IGN]
    try:
        for number in wanted:
            signal.signal(number, _end)
    except ValueError:  # not in the main thread: a program that calls the command
        yield
        return
    try:
        yield
    finally:
        for number in wanted:
            signal.signal(number, before[number] or signal.SIG_DFL)


def _end(number: int, _: object) -> NoReturn:
    sys.exit(KILLED_BY + number)


def confirm(question: str) -> None:
    """Return if the user answers yes.

    Raises `Refused` for no and for the end of standard input, KeyboardInterrupt for Ctrl-C.
    """
    try:
        if click.confirm(question, err=True):  # standard output is for what was done
            return
    except click.Abort as error:  # click would print "Aborted!", as if a transaction were meant
        click.echo(err=True)
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
    raise Refused("nothing was done")


def show_log() -> None:
    """Print the client's warnings on standard error, for commands that outlive a broker."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")


class _NewTopics(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "event", None) == TOPIC_CREATED:
            click.echo(sentence(record.getMessage()), err=True)


@contextmanager
def new_topics_shown() -> Iterator[None]:
    """Print a line on standard error for each topic that a record creates: a slip, perhaps."""
    logger, handler = logging.getLogger("odradek.client"), _NewTopics()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def sentence(text: str) -> str:
    """Return the text with a full stop, and with a capital unless it begins with a name."""
    first = text.partition(" ")[0]
    head = text[:1].upper() if first.strip(",:").isalpha() else text[:1]
    return f"{head}{text[1:].rstrip('.')}."


def check_reader() -> None:
    """Raise BrokenPipeError if the reader of standard output has closed the pipe.

    A command that waits for something to print would notice it only when it prints.
    """
    try:
        place = sys.stdout.fileno()
    except OSError:  # it is no file
        return
    poll = select.poll()
    poll.register(place, 0)
    if any(happened & select.POLLERR for _, happened in poll.poll(0)):
        raise BrokenPipeError


def connection_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options `--bootstrap`, `--command-config`, `--profile` and `--timeout`."""
    config = click.option(
        "--command-config",
        metavar="FILE",
        envvar="ODRADEK_COMMAND_CONFIG",
        show_envvar=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=_read_client_properties,
        help="A file of Kafka's client settings: security.protocol, ssl.*, sasl.*, "
        "bootstrap.servers.",
    )
    profile = click.option(
        "--profile",
        metavar="NAME",
        envvar="ODRADEK_PROFILE",
        show_envvar=True,
        is_eager=True,
        expose_value=False,
        callback=_read_profile,
        help="The same from ~/.config/odradek/NAME.properties.",
    )
    bootstrap = click.option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar="ODRADEK_BOOTSTRAP",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        show_envvar=True,
        help="A broker to begin with, or several separated by commas.",
    )
    timeout = click.option(
        "--timeout",
        "timeout_s",
        type=Seconds(min=0.001),
        default=DEFAULT_TIMEOUT_S,
        metavar="SECONDS",
        help=f"How long to wait for the broker.  [default: {DEFAULT_TIMEOUT_S:.0f}; "
        f"{FIRST_CONNECT_S:.0f} if it cannot be reached at all]",
    )
    return bootstrap(config(profile(timeout(command))))


def _read_client_properties(
    context: click.Context, option: click.Parameter, file: Path | None
) -> None:
    """Keep the options of a file for `limits`, and its address as the default of `--bootstrap`."""
    if file is None:
        return
    from odradek.client.cli.client_properties import (  # few commands have one
        gives_way,
        read_client_properties,
        warnings_of,
    )

    # click reads the command line before the environment.
    if OF_FILE in context.meta and gives_way(context, option.name or ""):
        return
    try:
        found = read_client_properties(file)
    except (OSError, ValueError) as error:
        raise click.ClickException(sentence(str(error))) from None
    for warning in warnings_of(file, found):
        click.echo(warning, err=True)
    context.meta[OF_FILE] = found.options
    if found.bootstrap is not None:
        context.default_map = {**(context.default_map or {}), "bootstrap": found.bootstrap}


def _read_profile(context: click.Context, option: click.Parameter, name: str | None) -> None:
    """Read the file of a profile as `_read_client_properties` does."""
    if name is None:
        return
    from odradek.client.cli.client_properties import gives_way, profile_file

    if OF_FILE in context.meta and gives_way(context, option.name or ""):
        return
    try:
        file = profile_file(name)
    except ValueError as error:
        raise click.ClickException(sentence(str(error))) from None
    _read_client_properties(context, option, file)


def assignment(text: str, option: str) -> tuple[str, str]:
    """Return the two halves of NAME=VALUE. Raises click.BadParameter."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE.", param_hint=option)
    return name, value


def assignments(texts: Sequence[str], option: str) -> dict[str, str]:
    """Return the values of several NAME=VALUE by name. Raises click.BadParameter."""
    found: dict[str, str] = {}
    for text in texts:
        name, value = assignment(text, option)
        if name in found:
            raise click.BadParameter(f"{name} is given twice.", param_hint=option)
        found[name] = value
    return found


def settings_of(texts: Sequence[str], option: str) -> dict[str, str]:
    """Return settings by name, durations and sizes as numbers: 1d is 86400000 in `retention.ms`.

    Raises click.BadParameter.
    """
    try:
        return {name: as_number(name, value) for name, value in assignments(texts, option).items()}
    except ValueError as error:
        raise click.BadParameter(f"{error}.", param_hint=option) from None


def json_option(what: str = "Print one JSON object.") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return the option `--json`."""
    return click.option("--json", "as_json", is_flag=True, help=what)


def limits(timeout_s: float) -> ClientOptions:
    """Return the options of a command's client: time limits, and those of `--command-config`.

    With an explicit --timeout the command waits that long, also for a broker that has not started.
    """
    context = click.get_current_context()
    source = context.get_parameter_source("timeout_s")
    is_default = source is click.core.ParameterSource.DEFAULT
    first_ms = in_ms(FIRST_CONNECT_S) if is_default else None
    of_file: ClientOptions = context.meta.get(OF_FILE, {})
    return {**of_file, "max_block_ms": in_ms(timeout_s), "first_connect_ms": first_ms}


def existing_topics(admin: Admin, *names: str) -> list[TopicDescription]:
    """Describe topics, which may have been created just now. Raises `Refused`."""
    return once_there(lambda: admin.describe_topics(*names))


def check_broker(admin: Admin, node_id: int) -> None:
    """Raise `Refused` if a broker is not in the cluster; it may have been started just now."""

    def look() -> None:
        there = sorted(broker.node_id for broker in admin.describe_cluster().brokers)
        if node_id not in there:
            raise no_broker(node_id, there)

    once_there(look)


def no_broker(node_id: int, there: Sequence[int]) -> Refused:
    """Return the error for a broker that the cluster does not have."""
    noun = "broker" if len(there) == 1 else "brokers"
    return Refused(
        f"there is no broker {node_id}: the cluster has {noun} {', '.join(map(str, there))} now",
        code=ErrorCode.BROKER_ID_NOT_REGISTERED,
    )


def once_there(look: Callable[[], T]) -> T:
    """Return what `look` returns. Repeat it for a second while what it looks for is not there."""
    deadline = time.monotonic() + APPEARS_S
    while True:
        try:
            return look()
        except Refused as error:
            if error.code not in NOT_THERE or time.monotonic() >= deadline:
                raise
        time.sleep(LOOK_S)


def together(errors: Sequence[OdradekError]) -> OdradekError:
    """Return one error that says what all of them say."""
    first = errors[0]
    return type(first)("; ".join(map(str, errors)), code=first.code)


def in_ms(seconds: float) -> int:
    """Return seconds as milliseconds, at least 1."""
    return max(1, round(seconds * 1000))


def echo_json(facts: Mapping[str, object]) -> None:
    """Print a JSON object as one line."""
    click.echo(json_line(facts))


def report(as_json: bool, facts: Mapping[str, object], text: str) -> None:
    """Print what was done: the facts with --json, else the sentence."""
    if as_json:
        echo_json(facts)
    else:
        click.echo(text)


def report_changes(
    as_json: bool,
    whose: Mapping[str, object],
    where: str,
    changes: Mapping[str, str | None],
    *,
    dry_run: bool,
) -> None:
    """Print which settings were changed; None stands for one that was taken back."""
    given = {name: value for name, value in changes.items() if value is not None}
    unset = [name for name, value in changes.items() if value is None]
    facts = {**whose, "set": given, "unset": unset, "dry_run": dry_run}
    done = [f"set {name}={value}" for name, value in given.items()]
    done += [f"unset {name}" for name in unset]
    would = "would " if dry_run else ""
    report(as_json, facts, sentence(f"{would}{' and '.join(done)} for {where}"))


def json_line(facts: Mapping[str, object]) -> str:
    """Return a JSON object that is one line for every reader, with readable text.

    JSON does not escape U+2028, U+0085 and similar characters, which end a line for Python's
    `splitlines`, and others that control a terminal. They are escaped here.
    """
    line = json.dumps(facts, ensure_ascii=False)
    return line if line.isprintable() else json.dumps(facts)


def terminal_width() -> int | None:
    """Return the columns of the terminal; None if standard output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def show_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    err: bool = False,
) -> None:
    """Print a table without frames. The columns of `right` have numbers."""
    for line in laid_out(columns, rows, right, terminal_width()):
        click.echo(line, err=err)
