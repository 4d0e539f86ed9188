"""An application that copies exactly once: each record of the source has one copy in the target.

It must hold when nobody writes to the source any more, and the application has read it to its end.
"""

from collections import Counter
from collections.abc import Iterator

from tests.checker.anomaly import Anomaly
from tests.checker.history import History

OF = b" of "


def copy_of(value: bytes, *, by: bytes, number: int) -> bytes:
    """Return the value of a copy. `number` makes it unique; `by` names the application."""
    return b"%s %d%s%s" % (by, number, OF, value)


def check_copies(history: History, *, source: str, target: str, by: bytes) -> Iterator[Anomaly]:
    """Yield each record of the source that has no copy, or several. Topics are given by name."""
    copies = Counter(
        value.partition(OF)[2]
        for (topic, _), records in history.log.items()
        for _, value in records
        if topic == target and value.startswith(by + b" ")
    )
    for where, records in history.log.items():
        for offset, value in records:
            if where[0] == source and copies[value] != 1:
                kind = "double-processing" if copies[value] else "skipped-input"
                yield Anomaly(
                    kind, f"{where} at {offset} has {copies[value]} copies by {by.decode()}"
                )
