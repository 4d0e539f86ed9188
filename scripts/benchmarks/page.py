"""The page `BENCHMARKS.md`: one table for each family of rows, from what `--json` has written.

What a family measures stands in the docstring of its module, and the page takes it from there. Each
table says when it was measured, with which Python, and how busy the machine was before. A floor
that does not hold is marked: the page shows what was seen, and not the best of it.
"""

import importlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from scripts.benchmarks.plots import NAME, PLOTS
from scripts.benchmarks.small import FAMILY as SMALL

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "BENCHMARKS.md"
BEGIN: Final = "<!-- made from measured figures: scripts/figures makes it anew -->"
END: Final = "<!-- end of the figures -->"
HEADING: Final = "## "


@dataclass(frozen=True, slots=True)
class Section:
    """The place of a family on the page. `options` are those of `scripts/bench` for it."""

    family: str
    module: str
    title: str
    options: tuple[str, ...] = ()


BESIDE_KAFKA: Final = ("--against", "kafka")
THREE_ROUNDS: Final = (*BESIDE_KAFKA, "--rounds", "3")
SECTIONS: Final = (
    Section("process", "process", "Start, memory and commands", BESIDE_KAFKA),
    Section(SMALL, "small", "Small requests", THREE_ROUNDS),
    Section("transactions", "transactions", "Transactions", BESIDE_KAFKA),
    Section("waves", "waves", "The fsyncs of a transaction", THREE_ROUNDS),
    Section("crowd", "crowd", "Transactions in a crowd", BESIDE_KAFKA),
    Section("java", "java_client", "Transactions of the Java client", BESIDE_KAFKA),
    Section("throughput", "throughput", "Bulk, librdkafka", THREE_ROUNDS),
    Section("java-bulk", "java_bulk", "Bulk, the Java client", THREE_ROUNDS),
    Section("clients", "clients", "Python clients", BESIDE_KAFKA),
    Section("concurrent", "concurrent", "Awaited sends"),
    Section("consumers", "consumers", "Loops over a consumer"),
    Section("order", "commit_order", "Reading in commit order"),
    Section("groups", "groups", "Transaction groups"),
    Section("membership", "membership", "Consumer groups", BESIDE_KAFKA),
    Section("idle", "idle", "Idle members", BESIDE_KAFKA),
    Section("commits", "commits", "Large offset commits", THREE_ROUNDS),
    Section("idle-fetch", "idle_fetch", "Idle partitions"),
    Section(
        "connections", "connections", "Idle connections, and a fleet that starts", BESIDE_KAFKA
    ),
    Section("many", "many", "Large numbers", BESIDE_KAFKA),
    Section("partitions", "partitions", "Many partitions", BESIDE_KAFKA),
    Section("scrapes", "scrapes", "Scrapes of many partitions"),
    Section("recovery", "recovery", "Restart of a coordinator", BESIDE_KAFKA),
    Section("authorizer", "authorizer", "An authoriser"),
    Section("encrypted", "encrypted", "Bulk over SASL_SSL", THREE_ROUNDS),
    Section("strangers", "strangers", "Handshakes and idle connections over SASL_SSL"),
    Section("flood", "flood", "Hostile strangers"),
    Section("spark", "spark", "Spark", BESIDE_KAFKA),
    Section("postgres", "postgres", "One commit with PostgreSQL"),
    Section("replicated", "replicated", "Three brokers", ("--cluster", *BESIDE_KAFKA)),
    Section("failover", "failover", "Failover of three brokers", ("--cluster",)),
)

Measured = Mapping[str, Any]
"""What `scripts/bench --json` has written."""


def file_of(folder: Path, section: Section) -> Path:
    return folder / f"{section.family}.json"


def written(page: str, folder: Path) -> str:
    """Return a page with the figures of a folder. A family without a file keeps what it has."""
    before, _, rest = page.partition(BEGIN)
    present, _, after = rest.partition(END)
    assert after, "the page has no place for figures"
    earlier = {part.partition("\n")[0]: part for part in present.split(f"\n{HEADING}")[1:]}
    parts = [f"{before}{BEGIN}\n"]
    for section in SECTIONS:
        path = file_of(folder, section)
        if path.exists():
            parts.append("\n".join(_section(section, json.loads(path.read_text()))) + "\n")
        elif section.title in earlier:
            parts.append(f"{HEADING}{earlier[section.title].rstrip()}\n")
    return "\n".join(parts) + f"\n{END}{after}"


def _section(section: Section, measured: Measured) -> Iterator[str]:
    yield f"{HEADING}{section.title}"
    yield ""
    yield from _description(section)
    yield ""
    table = _table_of_small if section.family == SMALL else _table
    yield from table(measured["rows"], measured["against"])
    yield ""
    if section.family == SMALL:
        for plot in PLOTS:
            yield f"![{plot.title}](docs/figures/{plot.file})"
            yield ""
    yield _circumstances(section, measured)


def _description(section: Section) -> Iterator[str]:
    documentation = importlib.import_module(f"scripts.benchmarks.{section.module}").__doc__
    assert documentation is not None, section.module
    yield documentation.strip()


def _circumstances(section: Section, measured: Measured) -> str:
    """Return the day, the command with the options that were given then, and where it was."""
    words = ["scripts/bench", *(word for word in section.options if word == "--cluster")]
    words += ["--rows", section.family]
    for name in ("against", "rounds"):
        if measured[name]:
            words += [f"--{name}", str(measured[name])]
    day = measured["measured"].partition("T")[0]
    before = measured["load before"]
    where = f"Python {measured['python']}, load of the machine before: {before:.1f}"
    return f"*{day}, `{' '.join(words)}`; {where}*"


def _table(rows: Sequence[Measured], against: str | None) -> Iterator[str]:
    has_floors = any(row["floor"] for row in rows)
    names = ["what", "Odradek"]
    names += ["Kafka" if against == "kafka" else against, "ratio"] if against else []
    names += ["floor"] if has_floors else []
    yield _line(names)
    yield "|---" * len(names) + "|"
    for row in rows:
        cells = [row["what"], _shown(row["odradek"], row["unit"])]
        if against:
            ratio = row["ratio"]
            cells += [_shown(row["against"], row["unit"]), "" if ratio is None else f"{ratio:.2f}"]
        yield _line(cells + ([_floor(row)] if has_floors else []))


def _floor(row: Measured) -> str:
    missed = " **missed**" if row["holds"] is False else ""
    return f"{row['floor'] or ''}{missed}"


def _table_of_small(rows: Sequence[Measured], against: str | None) -> Iterator[str]:
    """Yield one line for each load instead of four."""
    loads: dict[tuple[str, str, str], dict[str, Measured]] = {}
    for row in rows:
        if (name := NAME.fullmatch(row["what"])) is not None:
            load = name["generator"], name["partitions"], name["connections"]
            loads.setdefault(load, {})[name["what"]] = row
    columns: list[tuple[str, Callable[[dict[str, Measured]], str]]] = []
    for side, broker in (("odradek", "Odradek"), *((("against", "Kafka"),) if against else ())):
        for what, title in (
            ("small requests", "records/s"),
            ("small request p99", "p99"),
            ("small request CPU", "CPU"),
        ):
            columns.append((f"{broker}: {title}", _cell(what, side)))
    if against:
        columns.append(("rate", _ratio("small requests")))
        columns.append(("CPU", _ratio("small request CPU")))
    yield _line(["client", "partitions", "connections", *(title for title, _ in columns)])
    yield "|---" * (3 + len(columns)) + "|"
    for load, found in loads.items():
        yield _line([*load, *(cell(found) for _, cell in columns)])


def _cell(what: str, side: str) -> Callable[[dict[str, Measured]], str]:
    def cell(found: dict[str, Measured]) -> str:
        row = found.get(what)
        return "" if row is None else _shown(row[side], row["unit"])

    return cell


def _ratio(what: str) -> Callable[[dict[str, Measured]], str]:
    def cell(found: dict[str, Measured]) -> str:
        row = found.get(what)
        return "" if row is None or row["ratio"] is None else f"{row['ratio']:.2f}"

    return cell


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}".replace(" records/s", "/s").strip()


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(re.sub(r'[|]', '/', cell) for cell in cells)} |"
