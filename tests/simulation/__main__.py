"""The command `scripts/simulate`: run brokers under faults in simulated time, and judge them."""

import argparse
import json
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

from tests.simulation.failover import run_failover
from tests.simulation.faults import ALONE, CLUSTER, FOR_GOOD
from tests.simulation.fixed import Fixed
from tests.simulation.load import ACLS, ANEW, CROWD, GROUPS, SHARERS
from tests.simulation.marks import CLUSTER_MARKS, MARKS
from tests.simulation.plan import KINDS, draw
from tests.simulation.rare_load import RARE
from tests.simulation.simulation import Outcome, simulate

AT_ONCE = 2
FAILOVER_BROKERS = 30
CLIENTS = (GROUPS, CROWD, SHARERS, ANEW, ACLS, *RARE)
SEED_SECONDS = 300
"""The longest time that a process may take for its seed."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = _given(arguments)
    if given.failover is not None:
        print(run_failover(given.brokers or FAILOVER_BROKERS, given.failover))
        return 0
    without = [int(number) for number in given.without.split(",") if number]
    fixed = _fixed(given)
    if given.seeds is not None:
        marks = _marks(given.brokers) if fixed is None else []
        return _run_seeds(given.seeds, given.brokers, fixed, must_reach=marks)
    if given.fresh is not None:
        return _run_seeds(_fresh(given.fresh), given.brokers, fixed, must_reach=())
    plan = draw(given.seed, brokers=given.brokers, without=without, fixed=fixed)
    outcome = simulate(plan, keeps_lines=given.trace)
    if given.json:
        print(json.dumps(_as_json(outcome)))
        return 0
    for line in outcome.lines or ():
        print(line)
    print(plan)
    print(outcome.summary)
    for violation in outcome.violations:
        print(f"VIOLATED {violation}")
    return 1 if outcome.violations else 0


def _given(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments. What would be ignored is refused."""
    parser = _parser()
    given = parser.parse_args(arguments)
    for name in ("set", "clients", "seconds"):
        if given.faults is None and getattr(given, name) != parser.get_default(name):
            parser.error(f"--{name} needs --faults: without it the seed draws everything")
    alone = {kind.__name__ for kind in ALONE}
    for fault in given.faults or () if given.brokers == 1 else ():
        if fault not in alone:
            parser.error(f"{fault} needs several brokers: set --brokers 3")
    return given


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="run this seed, and show its faults")
    which.add_argument("--seeds", type=seed_range, help="run the seeds A-B, two at a time")
    which.add_argument(
        "--failover",
        type=int,
        metavar="PARTITIONS",
        help=f"kill one of --brokers (by default {FAILOVER_BROKERS}), and say what it took",
    )
    which.add_argument("--fresh", type=int, help="run so many seeds, others for each commit")
    parser.add_argument("--brokers", type=int, help="1, 3 or 5; by default the seed draws it")
    parser.add_argument("--without", default="", help="leave these faults out: their numbers, 3,5")
    parser.add_argument(
        "--faults", type=_kinds, help="only these kinds of fault, Kill,LinkCut, and a short load"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="with --faults: a setting"
    )
    parser.add_argument(
        "--clients",
        default="",
        help=f"with --faults: clients besides, of {', '.join(CLIENTS)}",
    )
    parser.add_argument(
        "--seconds", type=float, default=Fixed().seconds, help="with --faults: time of the load"
    )
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    parser.add_argument("--json", action="store_true", help="print the outcome for a program")
    return parser


def _kinds(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name)
    unknown = [name for name in names if name not in KINDS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no fault is a {unknown[0]}; there are {', '.join(KINDS)}"
        )
    return names


def _fixed(given: argparse.Namespace) -> Fixed | None:
    if given.faults is None:
        return None
    settings = dict(each.split("=", 1) for each in given.set)
    clients = tuple(name for name in given.clients.split(",") if name)
    return Fixed(faults=given.faults, settings=settings, seconds=given.seconds, clients=clients)


def seed_range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _fresh(count: int) -> range:
    """Return seeds that follow from the commit, so that they are not always the same."""
    first = int(commit()[:7], 16)
    print(f"simulate: seeds {first}-{first + count - 1}", flush=True)
    return range(first, first + count)


def commit() -> str:
    run = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    return run.stdout.strip()


def _as_json(outcome: Outcome) -> dict[str, object]:
    return {
        "violations": outcome.violations,
        "marks": outcome.marks,
        "digest": outcome.digest,
        "committed": outcome.committed,
        "seconds": outcome.seconds,
        "cpu": outcome.cpu_seconds,
        "summary": outcome.summary,
    }


def _run_seeds(
    seeds: range, brokers: int | None, fixed: Fixed | None, *, must_reach: Sequence[str]
) -> int:
    """Run seeds in processes of their own. Return 1 if one fails, or a mark was never reached."""
    began = monotonic()
    marks: Counter[str] = Counter()
    failed: list[int] = []
    committed = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for seed, found in zip(
            seeds, pool.map(lambda each: _in_process(each, brokers, fixed), seeds), strict=True
        ):
            marks.update(found.get("marks", {}))
            committed += found.get("committed", 0)
            if found["violations"]:
                failed.append(seed)
                _print_failure(seed, brokers, fixed, found["violations"])
    minutes = (monotonic() - began) / 60
    rate = len(seeds) / minutes * 60
    print(f"{len(seeds)} seeds, {committed} transactions committed, {rate:.0f} seeds an hour")
    for mark in sorted({*marks, *MARKS}):
        print(f"  {marks[mark]:7} {mark}")
    missing = [mark for mark in must_reach if not marks[mark]]
    if missing:
        print(f"simulate: no seed has reached: {', '.join(missing)}")
    if failed:
        print(f"simulate: {len(failed)} seeds failed: {failed}")
    return 1 if failed or missing else 0


def _in_process(seed: int, brokers: int | None, fixed: Fixed | None) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed), "--json"]
    command += [] if fixed is None else fixed.words()
    if brokers is not None:
        command += ["--brokers", str(brokers)]
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=SEED_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {"violations": [f"the run does not end within {SEED_SECONDS} s"]}
    if run.returncode:
        return {"violations": [f"the process failed: {run.stderr[-2000:]}"]}
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def _marks(brokers: int | None) -> list[str]:
    """Return the rare points that a long run must reach; each kind of fault is one."""
    if brokers == 1:
        return [*MARKS, *dict.fromkeys(kind.__name__ for kind in ALONE)]
    kinds = (*ALONE, *CLUSTER, *FOR_GOOD)
    return [*MARKS, *CLUSTER_MARKS, *dict.fromkeys(kind.__name__ for kind in kinds)]


def _print_failure(
    seed: int, brokers: int | None, fixed: Fixed | None, violations: list[str]
) -> None:
    print(f"FAILED seed {seed} at commit {commit()[:7]}: {violations[0]}")
    for violation in violations[1:5]:
        print(f"  and {violation}")
    # A seed draws other faults if the number of brokers is given than if it draws that too.
    given = "" if brokers is None else f" --brokers {brokers}"
    given += "" if fixed is None else f" {shlex.join(fixed.words())}"
    print(f"again: scripts/simulate --seed {seed}{given}")
    print(draw(seed, brokers=brokers, fixed=fixed), flush=True)


if __name__ == "__main__":
    sys.exit(main())
