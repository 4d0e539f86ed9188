"""The page of the rights that requests need, made from the declarations of the APIs.

`scripts/fix` writes it. A test fails if it is another one.
"""

from collections.abc import Iterator
from typing import Final

from odradek.broker.api import MODULES, declarations_of
from odradek.broker.api.listeners import Listeners
from odradek.broker.security.access import REFUSALS

TEMPLATE: Final = """\
<!-- made from the declarations of the APIs in broker/api: scripts/fix makes it anew -->

# Rights

The rights that requests need where an authoriser is switched on ([acls.md](acls.md)), and the error
that refuses a request, or a part of it, without them. An answer that lists what there is leaves out
what the client may not see, without an error. Brokers ask each other on a listener of their own,
where these rights do not count.

| key | API | right | error |
|---|---|---|---|
{rows}
"""


def page() -> str:
    """Return the text of docs/rights.md."""
    return TEMPLATE.format(rows="\n".join(row for _, row in sorted(_rows())))


def _rows() -> Iterator[tuple[tuple[int, int], str]]:
    for module in MODULES:
        for served in declarations_of(module):
            if Listeners.CLIENTS not in served.on:
                continue
            api = served.api
            if not served.needs:
                yield (api.key, 0), f"| {api.key} | {api.name} | none | |"
            for number, need in enumerate(served.needs):
                about = f", {need.about}" if need.about else ""
                refused_with = REFUSALS[need.right.kind][0].name
                named = f"| {api.key} | {api.name}" if not number else "| |"
                yield (api.key, number), f"{named} | {need.right}{about} | {refused_with} |"
