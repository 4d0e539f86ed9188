"""Which tests a change needs: `scripts/test --quick` and `scripts/test --changed` ask here.

    python -m tests.selection quick               the quick set, one argument of pytest a line
    python -m tests.selection changed [COMMIT]    the tests of the folders that differ from a commit
    python -m tests.selection failed              what the last run of pytest has left as failed

A folder of the product has its tests in the folder of the same name: those of `broker/txn/` are in
`tests/broker/txn/`. `ELSEWHERE` names the others.
"""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).parents[1]
ELSEWHERE: Final = {
    "broker/values": ("tests/broker/config", "tests/broker/partitions", "tests/broker/storage"),
    "broker/group/consumer": ("tests/broker/group",),
    "broker/storage/compaction": ("tests/broker/storage",),
    "client/spark": ("tests/spark",),
    "docs": (
        *("tests/test_pages.py", "tests/test_services_page.py", "tests/test_security_page.py"),
        "tests/test_design.py",
    ),
    "protocol/apis": ("tests/protocol",),
    "scripts/benchmarks": ("tests/benchmarks",),
    "scripts/compare": ("tests/benchmarks",),
    "scripts/deploy": ("tests/deploy", "tests/cluster/test_compose_file.py"),
    "scripts/etcd": ("tests/peers",),
    "scripts/first-page": ("tests/test_package.py",),
    "scripts/ledgers": ("tests/client/postgres",),
    "scripts/peer": ("tests/peers",),
    "scripts/plant": ("tests/planted",),
    "scripts/release": ("tests/release",),
    "scripts/releases": ("tests/release",),
    "scripts/simulate": ("tests/simulation",),
    "scripts/site": ("tests/site",),
    "scripts/soak": ("tests/soak",),
    "scripts/test": ("tests/test_selection.py",),
    "tests/laws": ("tests/test_tidy.py", "tests/laws"),
}
"""Where the tests of a folder are, if not in the folder of the same name."""
PAGES: Final = ELSEWHERE["docs"]
CENTRAL: Final = (
    *("protocol", "broker/environment", "broker/values", "broker/broker.py", "broker/process.py"),
    *("client/arguments.py", "client/config.py", "client/errors.py", "client/network.py"),
    *("client/options.py", "client/serialization.py", "client/types.py"),
    *("tests/conftest.py", "tests/drawing.py", "tests/fakes", "tests/programs.py"),
    *("pyproject.toml", "setup.py", "scripts/install", "scripts/test", "tests/selection.py"),
)
"""What almost everything stands on: when it changes, the quick set is run, too."""

QUICK: Final = (
    *("tests/broker", "tests/checker", "tests/fakes", "tests/protocol"),
    *("tests/client/administration", "tests/client/cli", "tests/client/cluster"),
    *("tests/client/consuming", "tests/client/grouping", "tests/client/producing"),
    *("tests/client/schemas", "tests/client/test_errors.py", "tests/client/test_slips.py"),
    *("tests/laws", "tests/test_design.py", "tests/test_selection.py", "tests/test_tidy.py"),
)
"""Folders of which the quick set has every test without the mark `slow`."""
SMOKE: Final = (
    "tests/client/aio/test_open_and_close.py",
    "tests/client/blocking/test_dropped.py",
    "tests/cluster/test_loopback.py::test_a_cut_holds_back_one_direction_until_it_is_healed",
    "tests/compat/test_confluent.py::test_an_idempotent_producer_gets_ascending_offsets[odradek]",
    "tests/judge/test_stories.py::test_ours_answers_as_recorded_kafka"
    "[fetch_sessions.from_beginning_to_end[version=12]]",
    "tests/simulation/test_seeds.py::test_one_broker_under_faults[1]",
    "tests/spark/test_samples.py::test_the_sample_of_the_readme_reads_and_writes[odradek]",
    "tests/stories/test_two_phase_commit.py"
    "::test_the_producer_goes_on_as_if_nothing_had_been[after-prepare-commit-confluent]",
)
"""A test of each big part that the quick set leaves out otherwise."""

FAILED: Final = ".pytest_cache/v/cache/lastfailed"
AGAIN_AT_MOST: Final = 3
"""More failures than these are no bad luck of a busy machine."""


def differing(commit: str, root: Path = ROOT) -> list[str]:
    """Return the files that differ from a commit, those that git does not know yet included."""

    def lines_of(*command: str) -> list[str]:
        asked = subprocess.run(
            ["git", *command], cwd=root, check=True, stdout=subprocess.PIPE, text=True
        )
        return asked.stdout.splitlines()

    tracked = lines_of("diff", "--name-only", "--no-renames", commit, "--")
    return sorted({*tracked, *lines_of("ls-files", "--others", "--exclude-standard")})


def failed(root: Path = ROOT) -> list[str]:
    """Return the tests that the last run of pytest has left as failed.

    Exits with a sentence if there are none, so that a run that broke off is not taken for a good
    one, or more than `AGAIN_AT_MOST`.
    """
    path = root / FAILED
    tests = list(json.loads(path.read_text())) if path.exists() else []
    if not tests:
        sys.exit("test: no test is noted as failed, so something else has ended the run")
    if len(tests) > AGAIN_AT_MOST:
        sys.exit(f"test: {len(tests)} tests failed; only {AGAIN_AT_MOST} are worth another try")
    return tests


def is_central(path: str) -> bool:
    return any(path == part or path.startswith(f"{part}/") for part in CENTRAL)


def needed_for(path: str) -> tuple[str, ...]:
    """Return the files and folders with the tests of one file of the project; () if it has none."""
    name = PurePosixPath(path)
    if name.parts[0] == "tests" and name.name.startswith("test_"):
        return (path,) if (ROOT / path).exists() else ()
    if path.endswith(".md") and len(name.parts) == 1:
        return PAGES
    for part in (path, *map(str, name.parents)):
        if part in ELSEWHERE:
            return ELSEWHERE[part]
        below = part.removeprefix("tests/").removeprefix("scripts/")
        own = ROOT / "tests" / below
        if below in ("broker", "client"):  # what is beside the folders, and not in them
            return tuple(str(test.relative_to(ROOT)) for test in sorted(own.glob("test_*.py")))
        if part != "." and own.is_dir() and any(own.rglob("test_*.py")):
            return (f"tests/{below}",)
    return ()


def without_inner(targets: Iterable[str]) -> list[str]:
    """Return the targets of which no other one contains them."""
    wanted = set(targets)
    return sorted(
        target
        for target in wanted
        if not any(str(outer) in wanted for outer in PurePosixPath(target).parents)
    )


def main() -> None:
    match sys.argv[1:]:
        case ["quick"]:
            chosen = [*QUICK, *SMOKE]
        case ["changed", *rest] if len(rest) < 2:
            changed = differing(rest[0] if rest else "HEAD")
            chosen = without_inner(test for path in changed for test in needed_for(path))
            chosen += ["quick"] if any(map(is_central, changed)) else []
        case ["failed"]:
            chosen = failed()
        case _:
            sys.exit(__doc__)
    for target in chosen:
        print(target)


if __name__ == "__main__":
    main()
