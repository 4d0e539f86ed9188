"""What the clients of a siege have done while it lasts. One that does nothing proves nothing."""

from collections.abc import Iterator, Mapping
from typing import Final

RECORDS_A_MINUTE: Final = 1_000
"""About a tenth of what two busy cores do: this is not a measurement."""


def idle(done: Mapping[str, Mapping[str, int]], *, minutes: float) -> Iterator[str]:
    """Yield a sentence for each client that did nothing, and one if all did too little.

    `done` has a mapping for each kind of work: of each client, how often it did it. The work
    `acknowledged` is counted in records.
    """
    for work, counts in done.items():
        for client, count in counts.items():
            if not count:
                yield f"{client} has done nothing of this while it was besieged: {work}"
    records, floor = sum(done["acknowledged"].values()), round(minutes * RECORDS_A_MINUTE)
    if records < floor:
        yield f"only {records:,} records were acknowledged in {minutes:g} minutes, not {floor:,}"
