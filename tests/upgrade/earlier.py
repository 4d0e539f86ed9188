"""The earlier version as a program: a commit of this repository, exported into a folder.

It needs no environment of its own, as its dependencies are among ours.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from odradek.broker.testing import RunningBroker

ROOT: Final = Path(__file__).parents[2]
COMMIT: Final = "f44ea8cb"
"""The commit of version 0.1.0."""
PROGRAM: Final = """#!{python}
import sys
sys.path[:] = [{folder!r}, *(path for path in sys.path if not path.endswith("/.ns"))]
from odradek.broker.cli import main
main(prog_name="odradek")
"""


def export_earlier(place: Path) -> Path | None:
    """Return the command `odradek` of the earlier version; None in a clone without its commit."""
    archive = place / "earlier.tar"
    made = subprocess.run(["git", "archive", "--output", archive, COMMIT], cwd=ROOT)
    if made.returncode != 0:
        return None
    subprocess.run(["tar", "-xf", archive, "-C", place], check=True)
    program = place / "odradek"
    program.write_text(PROGRAM.format(python=sys.executable, folder=str(place / ".ns")))
    program.chmod(0o755)
    return program


class EarlierBroker(RunningBroker):
    """A broker process of the earlier version, whose listeners had no names."""

    @property
    def listening(self) -> Sequence[str]:
        return ("--listen", self.address)


def broker_of(program: Path) -> type[EarlierBroker]:
    class Exported(EarlierBroker):
        command: ClassVar[Sequence[str]] = (str(program), "serve")

    return Exported
