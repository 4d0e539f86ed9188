"""The command `scripts/compare COMMIT`: compare this working tree with an earlier commit.

Both are measured in pairs, so that both meet the same load of the machine. In every second pair the
earlier commit runs first. The result is the median over the pairs.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from scripts.benchmarks.targets import AGAINST_VARIABLE, NOTHING, ROUNDS_VARIABLE

ROOT: Final = Path(__file__).parent.parent.parent
MORE_IS_BETTER: Final = frozenset({"MB/s", "records/s", "rows/s", "k records/s", "k rows/s"})
ROWS: Final = "process,transactions,crowd,throughput,small,clients"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One row, measured in every pair before and after."""

    what: str
    unit: str
    before: Sequence[float]
    after: Sequence[float]

    @property
    def change(self) -> float:
        """The improvement of the median: 0.05 is 5 % faster or smaller, -0.05 is 5 % worse."""
        before, after = statistics.median(self.before), statistics.median(self.after)
        if not before or not after:
            return 0.0
        return after / before - 1 if self.unit in MORE_IS_BETTER else before / after - 1

    @property
    def spread(self) -> tuple[float, float]:
        """The spread of the runs of each side, as a share of their median: before, after."""
        before, after = (
            (max(values) - min(values)) / statistics.median(values)
            if statistics.median(values)
            else 0.0
            for values in (self.before, self.after)
        )
        return before, after


Run = Mapping[str, tuple[float, str]]
"""The results of one run of `scripts/bench`: row -> value and unit."""


def compared(before: Sequence[Run], after: Sequence[Run]) -> list[Compared]:
    """Return the rows that every run has, in the order of the last run."""
    runs = [*before, *after]
    return [
        Compared(
            what=what,
            unit=unit,
            before=[run[what][0] for run in before],
            after=[run[what][0] for run in after],
        )
        for what, (_, unit) in after[-1].items()
        if all(what in run for run in runs)
    ]


def read_run(text: str) -> Run:
    """Read a file that `scripts/bench --json` wrote."""
    return {
        row["what"]: (row["odradek"], row["unit"])
        for row in json.loads(text)["rows"]
        if row["odradek"] is not None
    }


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Check out a commit into a temporary working tree, for the duration of the block.

    Raises click.ClickException if there is no such commit.
    """
    with tempfile.TemporaryDirectory(prefix="odradek-before-") as directory:
        tree = Path(directory) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        add = [*git, "add", "--quiet", "--detach", str(tree), commit]
        if subprocess.run(add, check=False).returncode:  # git has said why
            raise click.ClickException(f"{commit} cannot be checked out.")
        try:
            # In an early commit odradek is a namespace package, before which Python takes the one
            # that is installed here, wherever it stands in the path.
            (tree / ".ns" / "odradek" / "__init__.py").touch()
            build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
            subprocess.run(build, cwd=tree, check=False)  # an early one has nothing to compile
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def measured(tree: Path, rows: str, quick: bool) -> Run:
    """Run a tree's own `scripts/bench` once, with the libraries that are installed here."""
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
        result = Path(directory) / "figures.json"
        command = [sys.executable, "-m", "scripts.benchmarks", "--rows", rows]
        command += ["--json", str(result), *(["--quick"] if quick else [])]
        subprocess.run(
            command,
            cwd=tree,
            env={
                **os.environ,
                "PYTHONPATH": str(tree / ".ns"),
                AGAINST_VARIABLE: NOTHING,
                ROUNDS_VARIABLE: "1",
            },
            stdout=subprocess.DEVNULL,
        )
        if not result.exists():
            raise click.ClickException(f"scripts/bench failed in {tree}")
        return read_run(result.read_text())


def show(table_rows: Sequence[Compared], pairs: int, commit: str, console: Console) -> None:
    table = Table(title=f"Medians of {pairs} alternating pairs, beside {commit}")
    for name in ("what", "before", "now", "better by", "spread before", "spread now"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for row in table_rows:
        before, after = statistics.median(row.before), statistics.median(row.after)
        spread_before, spread_after = row.spread
        table.add_row(
            row.what,
            f"{before:,.4g} {row.unit}",
            f"{after:,.4g} {row.unit}",
            f"{row.change:+.1%}",
            f"{spread_before:.0%}",
            f"{spread_after:.0%}",
        )
    console.print(table)


@click.command()
@click.argument("commit")
@click.option("--rows", default=ROWS, show_default=True, metavar="A,B")
@click.option("--pairs", default=5, show_default=True, type=click.IntRange(min=1))
@click.option("--quick", is_flag=True, help="Fewer and smaller rounds in each run.")
def main(commit: str, rows: str, pairs: int, quick: bool) -> None:
    """Measure this working tree and COMMIT in turn."""
    console = Console(stderr=True)
    before: list[Run] = []
    after: list[Run] = []
    with checked_out(commit) as tree:
        for pair in range(pairs):
            sides = [(tree, before), (ROOT, after)]
            for side, runs in sides if pair % 2 == 0 else reversed(sides):
                name = commit if side == tree else "now"
                console.print(f"[dim]pair {pair + 1} of {pairs}: {name}[/]")
                runs.append(measured(side, rows, quick))
    show(
        compared(before, after), pairs, commit, Console(width=None if sys.stdout.isatty() else 120)
    )


if __name__ == "__main__":
    main(prog_name="scripts/compare")
