"""The limits of a client's connection, which settings give."""

from odradek.late import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a connection."""

    frame_max_bytes: int
    answer_max_bytes: int
    frame_seconds: float
    idle_seconds: float
