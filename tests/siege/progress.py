"""What the clients of a siege have done while it lasts. One that does nothing proves nothing."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

RECORDS_A_MINUTE: Final = 1_000
"""About a tenth of what two busy cores do: this is not a measurement."""
EACH_MEMBER_FROM_MINUTES: Final = 3
"""In a shorter siege a group is judged as a whole: it may take half a minute until it is settled,
and a member that joins late then finds nothing left to do."""


def idle(done: Mapping[str, Mapping[str, int]], *, minutes: float) -> Iterator[str]:
    """Yield a sentence for each client that did nothing, and one if all did too little.

    `done` has a mapping for each kind of work: of each client, how often it did it. The work
    `acknowledged` is counted in records.
    """
    for work, counts in done.items():
        judged = counts if minutes >= EACH_MEMBER_FROM_MINUTES else _with_whole_groups(counts)
        for client, count in judged.items():
            if not count:
                yield f"{client} has done nothing of this while it was besieged: {work}"
    records, floor = sum(done["acknowledged"].values()), round(minutes * RECORDS_A_MINUTE)
    if records < floor:
        yield f"only {records:,} records were acknowledged in {minutes:g} minutes, not {floor:,}"


def _with_whole_groups(counts: Mapping[str, int]) -> Mapping[str, int]:
    """Return the counts with the members of a group (`group-classic-ours`) added up."""
    whole: Counter[str] = Counter()
    for client, count in counts.items():
        is_member = client.startswith("group-")
        whole["-".join(client.split("-")[:2]) if is_member else client] += count
    return whole
