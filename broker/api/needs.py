"""The rights that an API needs, as its module declares them beside what it serves.

The handlers ask (`RequestContext.access`), because most answers are partial: a request has many
items, and each has its own refusal. The declaration says what they may ask. `scripts/fix` makes
docs/rights.md of it, and tests/broker/security/test_every_right.py compares it with what is asked.
"""

from typing import Final, NamedTuple

from odradek.broker.security.rights import Right


class Need(NamedTuple):
    """A right that a request needs, for the whole of it or for an item."""

    right: Right
    about: str = ""
    """Where it is needed, if that is not always."""


Needs = tuple[Need, ...]
NOTHING: Final[Needs] = ()
"""For an API that everybody may use."""
