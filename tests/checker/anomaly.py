"""An anomaly of a history: its kind, by the name that the literature gives it, and where it is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"
