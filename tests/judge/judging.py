"""Transcripts of stories: made, recorded and compared.

A recording is one text file per module of stories, each story a heading and its lines, so that a
change of Kafka's answers is a readable diff; the walks are compressed, ten seeds in a file.
"""

import contextlib
import difflib
import gzip
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.judge.broker import Broker
from tests.judge.difference import Difference
from tests.judge.differences import DIFFERENCES
from tests.judge.hurry import TooSlow
from tests.judge.setups import Address, SecuredAddress
from tests.judge.story import Story

RECORDED: Final = Path(__file__).parent / "recorded"
HEADING: Final = "== "
CONTEXT_LINES: Final = 12
COMPRESSED: Final = ".txt.gz"
PLAIN: Final = ".txt"


def transcript_of(broker: Address, story: Story) -> list[str]:
    """Run a story on a broker and return the transcript."""
    *attempts, last = story.prefixes
    for prefix in attempts:
        with contextlib.suppress(TooSlow):
            return _attempt(broker, story, prefix)
    return _attempt(broker, story, last)


def _attempt(broker: Address, story: Story, prefix: str) -> list[str]:
    judge = Broker(broker.host, broker.port, prefix)
    judge.doors = broker.doors if isinstance(broker, SecuredAddress) else None
    try:
        return story.run(judge)
    except BaseException as error:
        error.add_note("\n".join(("so far:", *judge.transcript[-CONTEXT_LINES:])))
        raise
    finally:
        judge.close()


def disagreements(
    story: str, kafka: list[str], ours: list[str]
) -> tuple[list[str], set[Difference]]:
    """Compare two transcripts.

    Return a diff of what is not in the list of differences, and the listed differences that were
    met.
    """
    met: set[Difference] = set()
    if kafka == ours:
        return [], met
    settled: list[str] = []
    same = difflib.SequenceMatcher(None, kafka, ours, autojunk=False)
    for _, start, end, my_start, my_end in same.get_opcodes():
        pairs = itertools.zip_longest(kafka[start:end], ours[my_start:my_end], fillvalue="")
        for theirs, mine in pairs:
            known = None if theirs == mine else _known(story, theirs, mine)
            if known is not None:
                met.add(known)
            settled.append(mine if known is None else theirs)
    settled = [line for line in settled if line]
    if settled == kafka:
        return [], met
    diff = difflib.unified_diff(kafka, settled, "Kafka", "ours", n=CONTEXT_LINES, lineterm="")
    return list(diff), met


def _known(story: str, theirs: str, mine: str) -> Difference | None:
    for difference in DIFFERENCES:
        if difference.explains(story, theirs, mine):
            return difference
    return None


def file_of(story: Story) -> str:
    """Return the name of the file with a story's recording."""
    return story.recording or f"{story.module}{PLAIN}"


def recorded(directory: Path = RECORDED) -> dict[str, list[str]]:
    """Return every recorded transcript by its story's id."""
    found: dict[str, list[str]] = {}
    for path in sorted(directory.iterdir()):
        if path.name.endswith(COMPRESSED):
            text = gzip.decompress(path.read_bytes()).decode()
        elif path.name.endswith(PLAIN):
            text = path.read_text()
        else:
            continue
        lines: list[str] = []
        for line in text.splitlines():
            if line.startswith(HEADING):
                lines = found.setdefault(line.removeprefix(HEADING), [])
            else:
                lines.append(line)
    return found


def record(transcripts: Mapping[str, Mapping[str, list[str]]], directory: Path = RECORDED) -> None:
    """Write recordings, by file and story. Each of these files is replaced as a whole."""
    for name, stories in transcripts.items():
        lines: list[str] = []
        for story, transcript in stories.items():
            lines += [HEADING + story, *transcript]
        data = ("\n".join(lines) + "\n").encode()
        if name.endswith(COMPRESSED):
            data = gzip.compress(data, mtime=0)
        (directory / name).write_bytes(data)
