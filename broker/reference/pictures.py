"""The pictures of docs/see-exactly-once.md, made from the table of transactions.

`scripts/fix` writes them into `docs/pictures`. A test fails if they differ.
"""

from typing import Final

from odradek.broker.reference.fenced_story import FencedStory, fenced_story
from odradek.broker.reference.partition_row import BOX, HEIGHT, Box, BoxKind, Row, edge
from odradek.broker.reference.svg import FAINT, Drawing

LEFT: Final = 210
LEGEND: Final = (
    (BoxKind.PLAIN, "record without a transaction"),
    (BoxKind.COMMITTED, "committed"),
    (BoxKind.OPEN, "transaction open"),
    (BoxKind.ABORTED, "aborted"),
    (BoxKind.MARKER, "marker"),
)


def pictures() -> dict[str, str]:
    """Return each file by its name."""
    story = fenced_story()
    drawn = {"readers": readers(), "zombie": zombie(story), "fencing": fencing(story)}
    return {f"{name}.svg": drawing.svg() for name, drawing in drawn.items()}


def readers() -> Drawing:
    """Draw a partition with an open transaction, and what each kind of reader gets."""
    row = Row(
        (
            Box(BoxKind.PLAIN, "a"),
            Box(BoxKind.COMMITTED, "b", "ada"),
            Box(BoxKind.MARKER, "COMMIT", "ada"),
            Box(BoxKind.OPEN, "c", "student"),
            Box(BoxKind.PLAIN, "d"),
            Box(BoxKind.OPEN, "e", "student"),
            Box(BoxKind.PLAIN, "f"),
        ),
        high_watermark=6,
    )
    drawing = Drawing(
        910,
        344,
        "One partition, and what each kind of reader gets",
        f"Seven offsets. The transaction of student is open from offset {row.last_stable_offset} "
        f"on: that is the last stable offset. The high watermark is {row.high_watermark}, the end "
        f"is {len(row.boxes)}. read_committed returns offsets 0 and 1, read_uncommitted also those "
        f"of the open transaction, a reader in commit order all that has been decided.",
    )
    drawing.text(20, 64 + HEIGHT // 2, "refunds-0", anchor="start", is_bold=True)
    row.draw(drawing, LEFT, 56)
    ends = (
        (row.last_stable_offset, "last stable offset"),
        (row.high_watermark, "high watermark"),
        (len(row.boxes), "end"),
    )
    for offset, name in ends:
        x = edge(LEFT, offset)
        drawing.line(x, 32, x, 296, is_dashed=True, ink=FAINT)
        drawing.text(x, 24, f"{name} {offset}", size=13, is_bold=True)
    for y, name, places in (
        (160, "read_committed", row.read_committed()),
        (205, "read_uncommitted", row.read_uncommitted()),
        (250, 'order="commit"', row.commit_order()),
    ):
        drawing.text(20, y + 19, f"{name} gets", anchor="start")
        row.draw_read(drawing, LEFT, y, places)
    beyond = edge(LEFT, row.high_watermark) + BOX // 2
    for line, text in enumerate(("not on every", "in-sync replica", "yet")):
        drawing.text(beyond, 168 + 16 * line, text, size=12, ink=FAINT)
    _legend(drawing, 320)
    return drawing


def _legend(drawing: Drawing, y: int) -> None:
    x = 20
    for kind, what in LEGEND:
        drawing.box(x, y - 11, 14, 14, fill=kind.value)
        drawing.text(x + 22, y + 1, what, anchor="start", size=12)
        x += 46 + 7 * len(what)


def zombie(story: FencedStory) -> Drawing:
    """Draw a partition before, during and after the commit of a producer that was replaced."""
    first = f"epoch {story.first}"
    is_open = [Box(BoxKind.OPEN, "refund 1", first), Box(BoxKind.OPEN, "refund 2", first)]
    aborted = [
        Box(BoxKind.ABORTED, "refund 1", first),
        Box(BoxKind.ABORTED, "refund 2", first),
        Box(BoxKind.MARKER, "ABORT", f"epoch {story.abort}"),
    ]
    ended = [
        *aborted,
        Box(BoxKind.COMMITTED, "refund 1", f"epoch {story.second}"),
        Box(BoxKind.MARKER, "COMMIT", f"epoch {story.commit}"),
    ]
    rows = (
        ("A has written,", "and stands still", is_open),
        ("C has started", "with the same id", aborted),
        ("A's commit is refused,", "C has committed", ended),
    )
    drawing = Drawing(
        910,
        430,
        "The partition before and after a zombie's commit",
        f"First two records with epoch {story.first}, open. Then an ABORT marker with epoch "
        f"{story.abort} behind them. In the end a record with epoch {story.second} and a COMMIT "
        f"marker with epoch {story.commit}: the zombie's commit has left nothing.",
    )
    for number, (when, and_so, boxes) in enumerate(rows):
        y = 50 + 112 * number
        row = Row(boxes, high_watermark=len(boxes))
        drawing.text(20, y + 26, when, anchor="start", is_bold=True)
        drawing.text(20, y + 44, and_so, anchor="start", is_bold=True)
        row.draw(drawing, LEFT, y)
        x = edge(LEFT, row.last_stable_offset)
        drawing.line(x, y - 6, x, y + HEIGHT + 6, is_dashed=True, ink=FAINT)
        drawing.text(
            x if x > LEFT else LEFT,
            y + HEIGHT + 20,
            f"last stable offset {row.last_stable_offset}",
            size=12,
            ink=FAINT,
        )
    for line, text in enumerate(
        (
            f"Fencing takes the next epoch, {story.abort}, and the marker carries it:",
            f"whatever still comes with epoch {story.first} is too old, and refused.",
            f"C gets epoch {story.second}. Its own commit takes {story.commit}.",
        )
    ):
        drawing.text(edge(LEFT, 2) + 40, 72 + 20 * line, text, anchor="start", size=13)
    _legend(drawing, 406)
    return drawing


def fencing(story: FencedStory) -> Drawing:
    """Draw who sends what to whom while one producer fences another."""
    lanes = {"A": 110, "coordinator": 350, "refunds-0": 616, "C": 810}
    steps = (
        ("A", "coordinator", "InitProducerId", f"epoch {story.first}"),
        ("A", "refunds-0", "Produce: refund 1, refund 2", f"epoch {story.first}"),
        ("C", "coordinator", "InitProducerId", "the same id"),
        ("coordinator", "refunds-0", "WriteTxnMarkers: ABORT", f"epoch {story.abort}"),
        ("coordinator", "C", "answer", f"epoch {story.second}"),
        ("C", "refunds-0", "Produce: refund 1", f"epoch {story.second}"),
        ("A", "coordinator", "EndTxn: commit", f"epoch {story.first}"),
        ("coordinator", "A", "PRODUCER_FENCED", "A ends"),
        ("C", "coordinator", "EndTxn: commit", f"epoch {story.second}"),
        ("coordinator", "refunds-0", "WriteTxnMarkers: COMMIT", f"epoch {story.commit}"),
    )
    height = 80 + 46 * len(steps)
    drawing = Drawing(
        910,
        height,
        "How the second producer fences the first",
        "; ".join(f"{source} to {target}: {what}, {how}" for source, target, what, how in steps),
    )
    for name, x in lanes.items():
        drawing.text(x, 28, name, is_bold=True, size=15)
        drawing.line(x, 40, x, height - 16, is_dashed=True, ink=FAINT)
    for number, (source, target, what, how) in enumerate(steps):
        y = 84 + 46 * number
        x, to_x = lanes[source], lanes[target]
        drawing.arrow(x, y, to_x, y)
        drawing.text((x + to_x) // 2, y - 8, f"{what} ({how})", size=13, is_outlined=True)
    return drawing
