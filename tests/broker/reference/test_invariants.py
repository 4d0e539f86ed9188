"""The page of invariants says what the comments beside the code say."""

from pathlib import Path

import pytest

from odradek.broker.reference.invariants import (
    SOURCES,
    InvariantComment,
    comments_in,
    comments_of,
    page_of,
)
from tests.planted.bugs import BUGS

ROOT = Path(__file__).parents[3]
COMMENTS = comments_in(SOURCES)
MODULE = '''
class Log:
    def append(self) -> None:
        """Append."""
        # why it is so
        # invariant durable 1: The end moves after
        # the write.
        # plant KAFKA-1
        # plant a bug whose name
        # is long
        # tests/test_log.py
        self.end += 1

    # invariant durable 2: Flushed.
    @property
    def flushed(self) -> int:
        # invariant durable 1
        # Another comment.
        return 1


# invariant disk 1: It is five.
WINDOW: int = 5
'''


def comment(group: str, number: int, sentence: str = "It holds.") -> InvariantComment:
    return InvariantComment(
        group=group, number=number, sentence=sentence, evidence=(), module="a.py", name="f"
    )


def test_the_page_is_the_one_that_the_comments_make() -> None:
    page = (ROOT / "docs/invariants.md").read_text()
    assert page == page_of(COMMENTS), "run scripts/fix: the comments beside the code have changed"


@pytest.mark.parametrize("found", COMMENTS, ids=lambda found: f"{found.group} {found.number}")
def test_what_sees_an_invariant_broken_is_there(found: InvariantComment) -> None:
    for evidence in found.evidence:
        name = evidence.removeprefix("plant ")
        is_planted = any(name in bug.bug.split(", ") for bug in BUGS)
        assert is_planted or (ROOT / evidence).is_file(), f"{found.module}: {evidence}"


def test_an_invariant_names_what_sees_it_broken() -> None:
    without = [f"{m.group} {m.number}" for m in COMMENTS if m.sentence and not m.evidence]
    assert without == ["admission 3"], "no test can see this one: `admission 2` refuses the batch"


def test_a_comment_is_read_with_its_place_and_what_sees_it_broken() -> None:
    first, second, again, last = comments_of("broker/storage/log.py", MODULE)
    assert first == InvariantComment(
        group="durable",
        number=1,
        sentence="The end moves after the write.",
        evidence=("plant KAFKA-1", "plant a bug whose name is long", "tests/test_log.py"),
        module="broker/storage/log.py",
        name="Log.append",
    )
    assert (second.name, second.sentence, second.evidence) == ("Log.flushed", "Flushed.", ())
    assert (again.name, again.number, again.sentence) == ("Log.flushed", 1, "")
    assert (last.name, last.group) == ("WINDOW", "disk")


def test_lines_that_hold_one_invariant_share_its_entry() -> None:
    page = page_of(comments_of("broker/storage/log.py", MODULE))
    assert "1. The end moves after the write.\n   Held by [`Log.append`](../broker/storage/" in page
    assert "log.py), [`Log.flushed`](../broker/storage/log.py)." in page


@pytest.mark.parametrize(
    ("comments", "wrong"),
    [
        ([comment("durable", 2)], "durable have the numbers"),
        ([comment("durable", 1), comment("durable", 1)], "durable 1 has 2 sentences"),
        ([comment("durable", 1, "")], "durable 1 has 0 sentences"),
        ([comment("no-such-group", 1)], "no such group"),
    ],
)
def test_a_comment_that_has_no_place_is_refused(
    comments: list[InvariantComment], wrong: str
) -> None:
    with pytest.raises(ValueError, match=wrong):
        page_of(comments)
