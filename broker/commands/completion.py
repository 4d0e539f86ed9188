"""`odradek completion`: scripts that complete commands and options in a shell."""

from typing import Final

import click
from click.shell_completion import ShellComplete, get_completion_class

SHELLS: Final = ("bash", "zsh", "fish")
PROGRAM: Final = "odradek"
VARIABLE: Final = "_ODRADEK_COMPLETE"
"""The variable with which the shell asks `odradek` for completions. click derives the name."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes commands and options of odradek in a shell.

    In bash, put this line into ~/.bashrc: eval "$(odradek completion bash)". The same line with zsh
    belongs into ~/.zshrc, after compinit. For fish, write the output to
    ~/.config/fish/completions/odradek.fish.
    """
    made = get_completion_class(shell)
    assert made is not None, shell
    command = click.get_current_context().find_root().command
    # click's own `source` of bash also runs bash, to warn of versions before 4.4.
    script = ShellComplete.source(made(command, {}, PROGRAM, VARIABLE))
    # click's script of fish cuts off descriptions at their first comma.
    click.echo(script.replace('string split "," $', 'string split --max 1 "," $'))
