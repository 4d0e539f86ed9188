"""The command `scripts/fuzz`."""

import sys
from collections.abc import Iterator
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from odradek.broker.testing import run_broker
from tests.fuzz.attack import Report, attack
from tests.fuzz.inputs import make
from tests.fuzz.setting import CONFIG, create_topics

SAID_EVERY: Final = 50_000
"""The inputs between two lines of output, where no terminal shows the progress."""


def shown(report: Report, console: Console) -> None:
    """Return the report as text."""
    seen = report.seen
    outcomes = ", ".join(f"{count} {name}" for name, count in report.outcomes.most_common())
    middle = report.memory_mib[len(report.memory_mib) // 2]
    console.print(
        f"{report.input_count} inputs in {report.seconds:.0f} s: {outcomes}\n"
        f"memory of the broker: {report.memory_mib[0]:.0f} MiB at first, {middle:.0f} half-way, "
        f"{report.memory_mib[-1]:.0f} in the end, {report.peak_mib:.0f} at most; "
        f"{report.log_lines} lines in its log\n"
        f"the honest client: {len(seen.committed)} transactions committed, {len(seen.aborted)} "
        f"aborted, all there; the longest took {seen.longest_seconds * 1000:.0f} ms",
        highlight=False,
    )


@click.command()
@click.option("--inputs", default=5_000, show_default=True, help="How many inputs to send.")
@click.option("--seed", default=0, show_default=True, help="Another seed draws other inputs.")
@click.option("--only", type=int, help="Send the one input of this number, and show it.")
def main(inputs: int, seed: int, only: int | None) -> None:
    """Attack a broker process with mutated requests while an honest client does transactions."""
    console = Console()
    numbers: Iterator[int] = iter(range(inputs)) if only is None else iter((only,))
    if only is not None:
        console.print(repr(make(seed, only)), highlight=False)
    with run_broker(config=CONFIG) as broker:
        create_topics(broker)
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        ) as progress:
            task = progress.add_task("inputs", total=inputs if only is None else 1)

            def sent(count: int) -> None:
                progress.update(task, completed=count)
                if not console.is_terminal and count % SAID_EVERY == 0:
                    console.print(f"{count} inputs", highlight=False)

            report = attack(broker, seed=seed, numbers=numbers, sent=sent)
    shown(report, console)
    for problem in report.problems:
        console.print(f"[red]problem[/red] {problem}", highlight=False)
    sys.exit(bool(report.problems))


if __name__ == "__main__":
    main()
