"""The command reference, made from the declarations of commands, so that it stays true.

`scripts/fix` writes the page. A test fails if the page differs from the declarations, or if a
command or an option has no help.
"""

import inspect
from collections.abc import Iterator
from typing import Final

import click

from odradek.broker.cli import main as odradek

NAME: Final = "odradek"
VERBATIM: Final = "\b"
"""Click keeps the line breaks of a paragraph that begins with this."""
INTRODUCTION: Final = """\
<!-- made from the declarations of the commands: scripts/fix makes it anew -->

# Commands

`odradek COMMAND --help` prints the same text. A command that fails prints a sentence to standard
error and ends with status 1, or with status 2 for a wrong option. Ctrl-C ends a command with status
130, SIGTERM with 143, SIGHUP (the end of the terminal) with 129: all leave the group, and abort the
transaction, that the command has. With status 0 `odradek serve` and `odradek web` end after each of
them, and `odradek txn watch` after Ctrl-C. `odradek serve` ignores SIGHUP where it has no terminal,
and each command ignores it under `nohup`.

A command with the option `--yes` asks first if standard input is a terminal, unless the option is
given. In a script it does not ask, but for `odradek cluster elect --unclean`; `odradek storage
import` needs `--yes` there if it leaves something out. An answer other than yes ends a command with
status 1.

Commands that connect to a broker work with other Kafka brokers, too. They read the address from the
environment variable `ODRADEK_BOOTSTRAP` unless `--bootstrap` is given.

With `--json` a command prints JSON objects, one on each line, and nothing else on standard output;
their keys are in its help. Keys stay; new ones may come. An error of a command that connects to a
broker is then an object on standard error, with the keys `error` and `code` (the name of the
protocol's error, or null).

A number of seconds may be written as a duration (`90s`, `5m`, `12h`, `7d`). So may the value of a
setting whose name ends in `ms`, `seconds`, `minutes` or `hours`, and as a size (`512MiB`, `1GB`)
one whose name has `bytes`: `--config`, `--set`, `odradek config set`, the file and options of
`odradek serve`. The broker gets the number, so this works with every Kafka.
"""


def page() -> str:
    """Return the text of docs/commands.md."""
    sections = [section for _, context in commands() for section in _section(context)]
    return "\n".join([INTRODUCTION, *sections])


def commands(
    command: click.Command = odradek, name: str = NAME, parent: click.Context | None = None
) -> Iterator[tuple[str, click.Context]]:
    """Yield the name and the context of a command, then those of its subcommands."""
    # Click keeps what it finds out here with the command, so its own settings must hold.
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    yield context.command_path, context
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None, inner
            yield from commands(found, inner, context)


def options(context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield how each option of a command is written, and its help. `--help` is left out."""
    for parameter in context.command.params:
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and record is not None:
            yield record


def _section(context: click.Context) -> Iterator[str]:
    command = context.command
    yield f"## {context.command_path}\n"
    yield f"    {command.get_usage(context).removeprefix('Usage: ')}\n"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith(VERBATIM):
            yield f"```\n{paragraph.removeprefix(VERBATIM).strip()}\n```\n"
        else:
            yield f"{paragraph}\n"
    rows = [f"| `{_cell(written)}` | {_cell(text)} |" for written, text in options(context)]
    if rows:
        yield "\n".join(["| option | what it does |", "|---|---|", *rows, ""])


def _cell(text: str) -> str:
    """Return `text` as the contents of a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")
