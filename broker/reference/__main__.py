"""Write what is generated: `python -m odradek.broker.reference docs`, in the root.

The pages and pictures of `docs`, and the index of the APIs in `broker/api/`.
"""

import sys
from pathlib import Path

from odradek.broker.reference import (
    api_index,
    commands,
    configuration,
    differences,
    invariants,
    rights,
)
from odradek.broker.reference.pictures import pictures

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    for module in (commands, configuration, differences, invariants, rights):
        name = module.__name__.rpartition(".")[2]
        (folder / f"{name}.md").write_text(module.page())
    for name, text in pictures().items():
        (folder / "pictures" / name).write_text(text)
    (folder.parent / "broker" / "api" / "index.py").write_text(api_index.page())
