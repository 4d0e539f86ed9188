"""The command `scripts/docs`: build the site of the pages, and follow every link of it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import click

from scripts.releases.source import find_release
from scripts.site.links import broken_links
from scripts.site.mermaid import NoMermaid, fetch_mermaid
from scripts.site.staging import stage

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
STAGED: Final = ROOT / "build" / "site"
SITE: Final = ROOT / "build" / "docs"
KEPT: Final = ROOT / "build" / "site-scripts"
REFERENCE: Final = "reference"
PACKAGES: Final = (
    "odradek.client",
    "odradek.client.aio",
    "odradek.client.blocking",
    "odradek.client.postgres",
    "odradek.client.postgres.blocking",
    "odradek.broker.testing",
)


@click.command(name="scripts/docs")
@click.option("--address", metavar="URL", help="The repository, if the remote origin is not it.")
def main(address: str | None) -> None:
    """Build the site into build/docs, with the reference of the client."""
    release = find_release(ROOT, address, is_dry=True)
    stage(ROOT, STAGED, address=release.address, commit=release.commit)
    try:
        shutil.copy(fetch_mermaid(KEPT), STAGED)
    except NoMermaid as error:
        raise click.ClickException(str(error)) from None
    templates = ["--template-directory", str(HERE / REFERENCE), "--docformat", "markdown"]
    _run("pdoc", "--output-directory", STAGED / REFERENCE, *templates, *PACKAGES)
    _run("mkdocs", "build", "--quiet", "--clean", "--config-file", HERE / "mkdocs.yml")
    broken = list(broken_links(SITE))
    if broken:
        raise click.ClickException("\n".join([f"{len(broken)} links are broken:", *broken]))
    click.echo(f"docs: open {(SITE / 'index.html').relative_to(ROOT)}")


def _run(module: str, *words: str | Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    if finished.returncode != 0:
        raise click.ClickException(f"{module} failed; its lines above say why.")


if __name__ == "__main__":
    main()
