"""A partition as a row of boxes: its contents, its ends, and the records that readers get. Pure."""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from odradek.broker.reference.svg import FAINT, Drawing
from odradek.late import dataclass

BOX: Final = 96
GAP: Final = 6
HEIGHT: Final = 64


class BoxKind(Enum):
    """The kinds of boxes, with their colours."""

    PLAIN = "#dbe9ff"
    COMMITTED = "#d3f2dc"
    OPEN = "#ffe9b8"
    ABORTED = "#ffd7d5"
    MARKER = "#e6e8eb"


READABLE: Final = (BoxKind.PLAIN, BoxKind.COMMITTED)


@dataclass(frozen=True, slots=True)
class Box:
    """A record or a marker, at the offset of its place in the row."""

    kind: BoxKind
    what: str
    whose: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A partition. `high_watermark`: the records below it are on every in-sync replica."""

    boxes: Sequence[Box]
    high_watermark: int

    @property
    def last_stable_offset(self) -> int:
        """The offset of the first record of an open transaction, or the high watermark."""
        first = [place for place, box in enumerate(self.boxes) if box.kind is BoxKind.OPEN]
        return min([*first, self.high_watermark])

    def read_committed(self) -> list[int]:
        return [place for place in self._of(READABLE) if place < self.last_stable_offset]

    def read_uncommitted(self) -> list[int]:
        return self._of((*READABLE, BoxKind.OPEN, BoxKind.ABORTED))

    def commit_order(self) -> list[int]:
        return self._of(READABLE)

    def _of(self, kinds: Sequence[BoxKind]) -> list[int]:
        return [
            place
            for place, box in enumerate(self.boxes[: self.high_watermark])
            if box.kind in kinds
        ]

    def draw(self, drawing: Drawing, x: int, y: int) -> None:
        """Draw the boxes, with their offsets above them."""
        for place, box in enumerate(self.boxes):
            left = edge(x, place) + GAP // 2
            middle = left + (BOX - GAP) // 2
            drawing.text(middle, y - 8, str(place), size=12, ink=FAINT)
            drawing.box(left, y, BOX - GAP, HEIGHT, fill=box.kind.value)
            drawing.text(middle, y + (28 if box.whose else 37), box.what, is_bold=True)
            drawing.text(middle, y + 48, box.whose, size=12)

    def draw_read(self, drawing: Drawing, x: int, y: int, places: Sequence[int]) -> None:
        """Draw the records that a reader gets, below the boxes."""
        for place in places:
            box = self.boxes[place]
            left = edge(x, place) + GAP // 2
            drawing.box(left, y, BOX - GAP, 28, fill=box.kind.value)
            drawing.text(left + (BOX - GAP) // 2, y + 19, box.what, size=13)


def edge(x: int, offset: int) -> int:
    """Return where the box of an offset begins."""
    return x + BOX * offset
