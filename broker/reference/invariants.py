"""The page of invariants, made from the comments beside the lines that hold them.

Such a comment stands above a line: `invariant`, the name of a group, a number in it, a colon, a
sentence or two. What fails without the line follows, each on a line of its own: `plant` and the
name of a planted bug, or the path of a test. Other lines that hold the same invariant have a
comment with the name and the number only.

The page names the function around a comment, or what follows it, and no line number. So the page
changes only if an invariant changes or moves to another function.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Final

from odradek.late import dataclass

GROUPS: Final = {
    "durable": "Durable before visible",
    "readers": "What readers see",
    "epochs": "Epochs and identity",
    "admission": "Admission",
    "markers": "Markers and completion",
    "tenures": "Tenures of coordinators",
    "idempotence": "Idempotence",
    "journal": "The journal of small appends (`log.flush=journal`)",
    "disk": "Logs on disk",
    "files": "Files that were damaged, exchanged or put back",
    "settings": "Settings",
    "authentication": "Authentication",
    "authorization": "Authorization",
    "bounds": "Bounds",
    "client": "Client",
    "commit-order": "Reading in commit order",
    "transaction-groups": "Transaction groups",
    "postgres": "One commit with PostgreSQL",
    "spark": "The sink and the source of Spark",
    "members": "Members of a group",
    "consumer-groups": "Consumer groups",
    "administration": "Administration",
}
"""The groups in the order of the page, with their headings."""
PACKAGES: Final = ("broker", "client", "protocol")
SOURCES: Final = Path(__file__).parents[2]
BEGIN: Final = re.compile(r"# invariant ([a-z-]+) ([0-9]+)(?:: (.+))?")
EVIDENCE: Final = re.compile(r"# (plant |tests/).+")
INTRODUCTION: Final = """\
<!-- made from the comments `# invariant ...` in the code: scripts/fix makes it anew -->

# Invariants

What is always true, the code that holds it, and what fails without that code: a planted bug of
[`tests/planted/`](../tests/planted/), which `scripts/plant WORDS` puts back, or tests.

The page is made from comments above the lines. `# invariant durable 3: A sentence.` is the third of
the group `durable`. A new one takes the next number of its group. Below it stand its planted bugs
and tests, each on a line of its own: `# plant KAFKA-9807`, `# tests/broker/test_broker.py`. If
another line holds the invariant, too, `# invariant durable 3` stands there.
[`scripts/fix`](../scripts/fix) then makes this page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvariantComment:
    """One comment. Its `sentence` is empty if it only says that its line holds an invariant, too.

    `name` is the function, class or constant, or empty for a whole module.
    """

    group: str
    number: int
    sentence: str
    evidence: tuple[str, ...]
    module: str
    name: str


def page() -> str:
    """Return the text of docs/invariants.md."""
    return page_of(comments_in(SOURCES))


def page_of(comments: Iterable[InvariantComment]) -> str:
    """Return the page of some comments. Raises ValueError for one that cannot be placed."""
    by_id: dict[tuple[str, int], list[InvariantComment]] = {}
    for comment in comments:
        by_id.setdefault((comment.group, comment.number), []).append(comment)
    if unknown := sorted({group for group, _ in by_id} - GROUPS.keys()):
        raise ValueError(f"no such group of invariants: {', '.join(unknown)}")
    sections = [INTRODUCTION]
    for group, heading in GROUPS.items():
        numbers = sorted(number for name, number in by_id if name == group)
        if numbers != list(range(1, len(numbers) + 1)):
            raise ValueError(f"the invariants {group} have the numbers {numbers}")
        sections.append(f"## {heading} (`{group}`)")
        sections += ["\n".join(_entry(by_id[group, number])) for number in numbers]
    return "\n\n".join(sections) + "\n"


def _entry(comments: list[InvariantComment]) -> Iterator[str]:
    main = [comment for comment in comments if comment.sentence]
    name = f"{comments[0].group} {comments[0].number}"
    if len(main) != 1:
        raise ValueError(f"the invariant {name} has {len(main)} sentences: {main}")
    others = sorted({_link(comment) for comment in comments} - {_link(main[0])})
    yield f"{main[0].number}. {main[0].sentence}"
    yield f"   Held by {', '.join([_link(main[0]), *others])}."
    if main[0].evidence:
        yield f"   Seen by {', '.join(map(_evidence, main[0].evidence))}."


def _link(comment: InvariantComment) -> str:
    return f"[`{comment.name or comment.module}`](../{comment.module})"


def _evidence(text: str) -> str:
    return f"`{text}`" if text.startswith("plant ") else f"[`{text}`](../{text})"


def comments_in(root: Path) -> list[InvariantComment]:
    """Return the comments of the packages below `root`, in the order of modules and lines."""
    modules = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    return [
        comment
        for path in modules
        for comment in comments_of(path.relative_to(root).as_posix(), path.read_text())
    ]


def comments_of(module: str, text: str) -> Iterator[InvariantComment]:
    """Yield the comments of one module."""
    if "# invariant " not in text:
        return
    lines = [line.strip() for line in text.splitlines()]
    tree = ast.parse(text)
    for at, line in enumerate(lines):
        begin = BEGIN.fullmatch(line)
        if begin is None:
            continue
        parts = [begin[3] or ""]
        # without a sentence, comments that follow are not a part of it
        for rest in lines[at + 1 :] if begin[3] else ():
            if not rest.startswith("# ") or BEGIN.fullmatch(rest):
                break
            if EVIDENCE.fullmatch(rest):
                parts.append(rest[2:])
            else:
                parts[-1] += rest[1:]
        yield InvariantComment(
            group=begin[1],
            number=int(begin[2]),
            sentence=parts[0],
            evidence=tuple(parts[1:]),
            module=module,
            name=_around(tree, at + 1),
        )


def _around(tree: ast.Module, line: int) -> str:
    """Return the dotted name of what is around a line, or of what follows it in a class."""
    names: list[str] = []
    body: list[ast.stmt] = tree.body
    while True:
        # a comment stands above what it is about, or inside of it
        following = [node for node in body if (node.end_lineno or node.lineno) > line]
        if not following:
            return ".".join(names)
        node = min(following, key=attrgetter("lineno"))
        if isinstance(node, ast.ClassDef):
            names.append(node.name)
            if node.lineno > line:
                return ".".join(names)
            body = node.body
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return ".".join([*names, node.name])
        else:
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            target = node.target if isinstance(node, ast.AnnAssign) else target
            return ".".join([*names, target.id] if isinstance(target, ast.Name) else names)
