"""Access control: each request that it guards, and who may make it.

The guest has no entries; exactly those that it needs; all but one of them; one that denies beside
them; entries for another host, or for the beginnings of names. The chief is a super user.
"""

from collections.abc import Sequence
from typing import Final

from odradek.protocol.apis.acls import AclCreation
from tests.judge.broker import Broker
from tests.judge.doors import CHIEF, GUEST
from tests.judge.guarded import ROWS, Guarded, Need
from tests.judge.line import HERE
from tests.judge.permitting import (
    DENY,
    ELSEWHERE,
    Prepared,
    ask_as,
    entries_of,
    permitted,
    prefixes_of,
)
from tests.judge.story import SECURED, in_setup, recorded_only, variants

REQUESTS: Final = {row.name: row for row in ROWS}
RIGHTS: Final = {f"{row.name}: {need}": (row, need) for row in ROWS for need in row.needs}
"""The rights of requests."""
RIGHTS_OF_SEVERAL: Final = [
    f"{row.name}: {need}" for row in ROWS for need in row.needs if len(row.needs) > 1
]
"""Those of requests that need several."""


def ask(
    broker: Broker,
    row: Guarded,
    entries: Sequence[AclCreation],
    what: str,
    *,
    who: str = GUEST,
    sources: Sequence[str] = (HERE,),
) -> None:
    """Send the request of a row, from each of these addresses, where there are these entries."""
    assert broker.doors is not None
    scene = Prepared(broker, row)
    with permitted(broker, entries):
        for source in sources:
            line = broker.doors.line(who, source)
            try:
                ask_as(line, what if source == HERE else f"{what}, elsewhere", row, scene)
            finally:
                line.close()
        if "id" in row.prepared:
            broker.settle("x")


def needs_but(row: Guarded, but: Need) -> list[Need]:
    return [need for need in row.needs if need != but]


@recorded_only
@in_setup(SECURED)
@variants(request=REQUESTS)
def story_nothing(broker: Broker, request: str) -> None:
    ask(broker, REQUESTS[request], [], "nothing")


@in_setup(SECURED)
@variants(request=REQUESTS)
def story_needed(broker: Broker, request: str) -> None:
    row = REQUESTS[request]
    ask(broker, row, entries_of(broker, row.needs), "needed")


@recorded_only
@in_setup(SECURED)
@variants(right=RIGHTS_OF_SEVERAL)
def story_missing(broker: Broker, right: str) -> None:
    row, need = RIGHTS[right]
    ask(broker, row, entries_of(broker, needs_but(row, need)), f"without {need}")


@recorded_only
@in_setup(SECURED)
@variants(right=RIGHTS)
def story_denied(broker: Broker, right: str) -> None:
    row, need = RIGHTS[right]
    entries = entries_of(broker, row.needs)
    entries += entries_of(broker, [need], permission_type=DENY)
    ask(broker, row, entries, f"denied {need}")


@recorded_only
@in_setup(SECURED)
@variants(request=REQUESTS)
def story_other_host(broker: Broker, request: str) -> None:
    row = REQUESTS[request]
    entries = entries_of(broker, row.needs, host=ELSEWHERE)
    ask(broker, row, entries, "other host", sources=(HERE, ELSEWHERE))


@recorded_only
@in_setup(SECURED)
@variants(request=REQUESTS)
def story_prefixes(broker: Broker, request: str) -> None:
    row = REQUESTS[request]
    ask(broker, row, prefixes_of(broker, row.needs), "prefixes")


@recorded_only
@in_setup(SECURED)
@variants(request=REQUESTS)
def story_super_user(broker: Broker, request: str) -> None:
    ask(broker, REQUESTS[request], [], "super user", who=CHIEF)
