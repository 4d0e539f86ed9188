"""The owners of the partitions, as processors report them, and how long partitions took to move."""

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

HANDED_OVER: Final = "a processor gave it up"


@dataclass(slots=True)
class Owners:
    """The owners of the partitions. The methods return sentences about what has happened."""

    partitions: Collection[int]
    clock: Callable[[], float] = time.monotonic
    owned: dict[str, set[int]] = field(default_factory=dict)
    waits: dict[str, list[float]] = field(default_factory=dict)
    """The seconds that partitions were without an owner, by the cause."""
    _free_since: dict[int, tuple[float, str]] = field(default_factory=dict)

    def assigned(self, name: str, partitions: Iterable[int]) -> str:
        """Note that a processor has got partitions."""
        now, took = self.clock(), dict[str, float]()
        for partition in partitions:
            self.owned.setdefault(name, set()).add(partition)
            if partition in self._free_since:
                since, cause = self._free_since.pop(partition)
                self.waits.setdefault(cause, []).append(now - since)
                took[cause] = max(took.get(cause, 0.0), now - since)
        waited = "".join(f", {seconds:.1f} s after {cause}" for cause, seconds in took.items())
        return f"processor {name} owns {_listed(self.owned.get(name, ()))}{waited}"

    def revoked(self, name: str, partitions: Iterable[int]) -> str:
        """Note that a processor gives partitions up."""
        given_up = sorted(partitions)
        self._free(name, given_up, HANDED_OVER)
        return f"processor {name} gives up {_listed(given_up)}"

    def lost(self, name: str, partitions: Iterable[int]) -> str:
        """Note that a processor has learned that its partitions went to others."""
        gone = sorted(partitions)
        self._free(name, gone, "a processor was taken for dead")
        return f"processor {name} has lost {_listed(gone)}: the group took it for dead"

    def ended(self, name: str, cause: str) -> str:
        """Note that a processor serves nothing from now on. Return what it owned."""
        gone = sorted(self.owned.get(name, ()))
        self._free(name, gone, cause)
        return _listed(gone)

    def _free(self, name: str, partitions: Iterable[int], cause: str) -> None:
        mine = self.owned.get(name, set())
        for partition in partitions:
            if partition in mine:
                mine.remove(partition)
                self._free_since[partition] = (self.clock(), cause)

    def are_settled(self, names: Collection[str]) -> bool:
        """Return True if the processors share all partitions, and each has its part."""
        shares = [self.owned.get(name, set()) for name in names]
        listed = sorted(partition for share in shares for partition in share)
        if listed != sorted(self.partitions):
            return False
        return all(shares) or len(shares) > len(self.partitions)

    def summary(self) -> list[str]:
        """Return a sentence for each cause: how long partitions took to move."""
        return [
            f"moves of partitions after {cause}: {len(waits)}, each in "
            f"{sum(waits) / len(waits):.1f} s on average, {max(waits):.1f} s at most"
            for cause, waits in sorted(self.waits.items())
        ]


def _listed(partitions: Collection[int]) -> str:
    if not partitions:
        return "no partition"
    word = "partition" if len(partitions) == 1 else "partitions"
    return f"{word} {', '.join(str(number) for number in sorted(partitions))}"
