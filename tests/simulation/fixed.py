"""What a command line fixes of a plan: the kinds of fault, settings, and the length of the load.

The seed draws the rest in a way that does not depend on which kinds of fault there are. So a
planted bug that names what reaches it is still found when a kind of fault is added.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """What is fixed. Without `faults` there are none."""

    faults: tuple[str, ...] = ()
    """The names of the kinds of fault. One that is named twice is twice as frequent."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Properties of the brokers."""
    seconds: float = 5.0
    """The time of the load, in simulated seconds."""
    clients: tuple[str, ...] = ()
    """Clients besides the usual ones, by name: those that `scripts/simulate --help` lists."""

    def words(self) -> list[str]:
        """Return the words of the command line that fix the same."""
        words = ["--faults", ",".join(self.faults), "--seconds", f"{self.seconds:g}"]
        words += ["--clients", ",".join(self.clients)] if self.clients else []
        for name, value in self.settings.items():
            words += ["--set", f"{name}={value}"]
        return words
