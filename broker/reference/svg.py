"""Small drawings as SVG: boxes, lines, arrows and text on an opaque ground. Pure.

The ground and the colours are fixed, so that a drawing is legible on a dark page as on a light one.
A title and a description are in the file for readers who do not see it.
"""

from dataclasses import field
from typing import Final
from xml.sax.saxutils import escape

from odradek.late import dataclass

INK: Final = "#1f2328"
FAINT: Final = "#59636e"
GROUND: Final = "#ffffff"
FRAME: Final = "#d1d9e0"
HEAD: Final = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>'
)
"""The head of an arrow."""
FONT: Final = "ui-sans-serif, system-ui, 'DejaVu Sans', Arial, sans-serif"


@dataclass(slots=True)
class Drawing:
    """A drawing of a size in pixels; y grows downwards."""

    width: int
    height: int
    title: str
    description: str
    _parts: list[str] = field(default_factory=list)

    def box(
        self, x: int, y: int, width: int, height: int, *, fill: str = GROUND, ink: str = INK
    ) -> None:
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{fill}" '
            f'stroke="{ink}"/>'
        )

    def line(
        self, x: int, y: int, to_x: int, to_y: int, *, ink: str = INK, is_dashed: bool = False
    ) -> None:
        dashes = ' stroke-dasharray="4 4"' if is_dashed else ""
        self._parts.append(
            f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="{ink}"{dashes}/>'
        )

    def arrow(self, x: int, y: int, to_x: int, to_y: int, *, ink: str = INK) -> None:
        self._parts.append(
            f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="{ink}" stroke-width="1.5" '
            f'marker-end="url(#head)"/>'
        )

    def text(
        self,
        x: int,
        y: int,
        text: str,
        *,
        anchor: str = "middle",
        size: int = 14,
        ink: str = INK,
        is_bold: bool = False,
        is_outlined: bool = False,
    ) -> None:
        """Write a text. `is_outlined` keeps it apart from lines below it."""
        weight = ' font-weight="600"' if is_bold else ""
        if is_outlined:
            weight += f' stroke="{GROUND}" stroke-width="5" paint-order="stroke"'
        self._parts.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" '
            f'fill="{ink}"{weight}>{escape(text)}</text>'
        )

    def svg(self) -> str:
        """Return the text of the SVG file, whose title and description a screen reader reads."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" role="img" aria-labelledby="title about" '
            f'font-family="{FONT}">'
        )
        lines = [
            head,
            f'<title id="title">{escape(self.title)}</title>',
            f'<desc id="about">{escape(self.description)}</desc>',
            HEAD,
            f'<rect width="{self.width}" height="{self.height}" fill="{GROUND}"/>',
            f'<rect x="0.5" y="0.5" width="{self.width - 1}" height="{self.height - 1}" '
            f'fill="none" stroke="{FRAME}"/>',
            *self._parts,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"
