"""Write the generated pages: `python -m odradek.broker.reference docs`."""

import sys
from pathlib import Path

from odradek.broker.reference import commands, configuration

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for module in (commands, configuration):
        name = module.__name__.rpartition(".")[2]
        (folder / f"{name}.md").write_text(module.page())
