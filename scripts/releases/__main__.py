"""The command `scripts/release`: from a tagged commit to the files that are published."""

import hashlib
import platform
import shutil
import tempfile
from pathlib import Path
from typing import Final

import click

from scripts.releases.image import build_image
from scripts.releases.packages import build_packages, check_and_list, pack_deployment
from scripts.releases.source import Release, ReleaseError, export, find_release

ROOT: Final = Path(__file__).parents[2]
PARTS: Final = ("packages", "image")
SUMS: Final = "SHA256SUMS"


@click.command(name="scripts/release")
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option("--dry-run", is_flag=True, help="Take the last commit, with or without a tag.")
@click.option("--address", metavar="URL", help="The repository, if the remote origin is not it.")
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    default=ROOT / "build" / "release",
    help="The folder that gets a folder of the version.",
)
def main(parts: tuple[str, ...], dry_run: bool, address: str | None, into: Path) -> None:
    """Build the packages, the image and their checksums. Without PARTS: all of them."""
    try:
        release = find_release(ROOT, address and address.rstrip("/"), is_dry=dry_run)
        _build(parts or PARTS, release, into / release.version)
    except ReleaseError as error:
        raise click.ClickException(str(error)) from None


def _build(parts: tuple[str, ...], release: Release, target: Path) -> None:
    click.echo(f"release: {release.version}, commit {release.commit}, in {target}")
    if release.address is None:
        click.echo("release: no address is known, so the links of the README stay relative")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="odradek-release-") as made:
        work = Path(made)
        export(ROOT, release, work / "sources")
        if "packages" in parts:
            packages = build_packages(release, work / "sources", target, work)
            wheel = next(one for one in packages if platform.machine() in one.name)
            check_and_list(release, wheel, target, work)
            pack_deployment(release, work / "sources", target)
        if "image" in parts:
            build_image(release, work / "sources", target, work)
    files = sorted(target.iterdir())
    (target / SUMS).write_text(checksums(files))
    for path in files:
        click.echo(f"release: {path.name}, {path.stat().st_size:,} bytes")


def checksums(files: list[Path]) -> str:
    """Return the lines that `sha256sum --check` reads."""
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files
    )


if __name__ == "__main__":
    main()
