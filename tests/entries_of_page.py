"""The ACL entries that docs/secured-clients.md prints, as commands to copy."""

import argparse
import re
import shlex
from pathlib import Path
from typing import Final

from odradek.client.blocking import Acl

PAGE: Final = Path(__file__).parents[1] / "docs" / "secured-clients.md"
COMMAND: Final = re.compile(r"^ *odradek acl add (.*)$", re.MULTILINE)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    resource = parser.add_mutually_exclusive_group(required=True)
    for kind in ("topic", "group", "transactional-id"):
        resource.add_argument(f"--{kind}")
    parser.add_argument("--prefixed", action="store_true")
    parser.add_argument("--principal", required=True)
    parser.add_argument("--operation", action="append", required=True)
    return parser


def section(title: str) -> str:
    """Return the text of a section of the page."""
    _, _, rest = PAGE.read_text().partition(f"\n## {title}\n")
    assert rest, title
    return rest.partition("\n## ")[0]


def entries_of(title: str, principal: str) -> list[Acl]:
    """Return the entries that a section gives a principal, each with one operation."""
    parser = _parser()
    found: list[Acl] = []
    for words in COMMAND.findall(section(title)):
        given = parser.parse_args(shlex.split(words))
        named = {
            "topic": given.topic,
            "group": given.group,
            "transactional_id": given.transactional_id,
        }
        ((kind, name),) = [(kind, name) for kind, name in named.items() if name is not None]
        found += [
            Acl(
                kind,  # type: ignore[arg-type]  # one of the three words
                name,
                given.principal,
                operation,
                pattern="prefixed" if given.prefixed else "literal",
            )
            for operation in given.operation
            if given.principal == principal
        ]
    assert found, f"{title} gives {principal} nothing"
    return found
