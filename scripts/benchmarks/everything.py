"""The command `scripts/figures`: measure all families, each alone, and write the page.

A family whose file is there is not measured again, so a run that was stopped goes on, and one
family is measured anew by removing its file.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

import click

from scripts.benchmarks import plots
from scripts.benchmarks.page import PAGE, ROOT, SECTIONS, Section, file_of, written
from scripts.benchmarks.small import FAMILY as SMALL

FOLDER: Final = ROOT / "build" / "figures"
FLOORS_MISSED: Final = 1


@click.command()
@click.argument("folder", default=FOLDER, type=click.Path(file_okay=False, path_type=Path))
@click.option("--only-write", is_flag=True, help="Measure nothing: write the page of the files.")
def main(folder: Path, *, only_write: bool) -> None:
    """Measure what FOLDER has no file of, and write BENCHMARKS.md and its pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    failed = [] if only_write else [each.family for each in SECTIONS if not _measure(folder, each)]
    if (small := folder / f"{SMALL}.json").exists():
        plots.main([str(small)], standalone_mode=False)
    PAGE.write_text(written(PAGE.read_text(), folder))
    click.echo(f"{PAGE.name} is written from {folder}.")
    if failed:
        raise click.ClickException(f"Not measured: {', '.join(failed)}. Their output says why.")


def _measure(folder: Path, section: Section) -> bool:
    """Return True if the file of a family is there."""
    path = file_of(folder, section)
    if path.exists():
        return True
    click.echo(f"{section.title} ...")
    command = [sys.executable, "-m", "scripts.benchmarks", "--rows", section.family]
    command += [*section.options, "--json", str(path)]
    with path.with_suffix(".out").open("wb") as output:
        ended = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
    return ended.returncode in (0, FLOORS_MISSED) and path.exists()


if __name__ == "__main__":
    main(prog_name="scripts/figures")
