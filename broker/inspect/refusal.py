"""The refusal of a command that makes a data directory out of another one."""

from collections.abc import Sequence


class CannotCopy(Exception):
    """A directory cannot be taken over. `reasons` are sentences for a person."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(" ".join(reasons))
        self.reasons = reasons
