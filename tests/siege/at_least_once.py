"""The check of a copy that was made without transactions, by the members of a group.

A member writes what it has read and then stores its offsets as a member (`commit`). If it dies in
between, or is taken for dead, the next owner of the partition copies the same records again. So a
record may be there several times. None may be missing, and the first copies are in the order of the
source: an owner begins at a stored offset, and everything before it was written by then.
"""

from collections.abc import Iterator, Mapping, Sequence

from tests.checker.anomaly import Anomaly
from tests.checker.history import Found, Partition

Log = Mapping[Partition, Sequence[Found]]


def check_copied(source: Log, copy: Log, stored: Mapping[Partition, int]) -> Iterator[Anomaly]:
    """Yield each anomaly. `stored` has the offsets of the group in the source."""
    copies = {number: records for (_, number), records in copy.items()}
    for place, records in source.items():
        wanted = [value for _, value in records]
        found = list(dict.fromkeys(value for _, value in copies[place[1]]))
        known = set(wanted)
        for value in found:
            if value not in known:
                yield Anomaly("phantom", f"{place}: {value[:40]!r} was copied from nowhere")
        copied = set(found)
        for value in wanted:
            if value not in copied:
                yield Anomaly("skipped-input", f"{place}: {value[:40]!r} was not copied")
        if copied == known and found != wanted:
            yield Anomaly("nonmonotonic-send", f"{place}: the first copies have another order")
        end = records[-1][0] + 1 if records else 0
        if stored.get(place, 0) != end:
            yield Anomaly("offset-not-stored", f"{place}: {stored.get(place)} is stored, not {end}")
