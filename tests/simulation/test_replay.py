"""A seed runs the same in every process, and what would make it differ is refused."""

import os
import random
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Final

import pytest
import trio
from trio._core import _run

from tests.simulation.faults import ALONE, CLUSTER
from tests.simulation.fixed import Fixed
from tests.simulation.guard import OURS, PastEnv, guarded
from tests.simulation.load import ACLS, CROWD, GROUPS, SHARERS
from tests.simulation.scheduling import FLAG, PROCESS, Process, let_processes_freeze

ROOT = Path(__file__).parents[2]


EVERYTHING: Final = Fixed(
    faults=tuple(kind.__name__ for kind in (*ALONE, *CLUSTER)),
    seconds=3.0,
    clients=(GROUPS, CROWD, SHARERS, ACLS),
)
"""Every kind of fault, and most kinds of client, in a short load."""


def run_of(seed: int, brokers: int, fixed: Fixed | None, hash_seed: str) -> str:
    """Return everything that happened in a run, without its last lines, which have its CPU time."""
    words = ["--seed", str(seed), "--brokers", str(brokers), "--trace"]
    words += [] if fixed is None else fixed.words()
    command = [sys.executable, "-m", "tests.simulation", *words]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ".ns"}
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    return run.stdout.partition("\nseed ")[0]


@pytest.mark.parametrize(
    ("seed", "brokers", "fixed"),
    [
        pytest.param(3, 1, None, id="one broker"),
        pytest.param(1, 3, EVERYTHING, id="three brokers"),
        pytest.param(3, 3, None, id="three brokers, longer", marks=pytest.mark.minutes),
    ],
)
def test_a_seed_runs_the_same_in_two_processes_with_different_hash_seeds(
    seed: int, brokers: int, fixed: Fixed | None
) -> None:
    first, second = (run_of(seed, brokers, fixed, hash_seed) for hash_seed in ("1", "77"))
    assert first.count("\n") > 1000
    assert first == second


def test_trio_has_the_private_names_that_the_simulation_needs() -> None:
    """A new version of trio may change them. Then the pin in pyproject.toml must stay or move."""
    assert isinstance(getattr(_run, FLAG), bool)
    assert isinstance(_run._r, random.Random)
    assert "runq" in _run.Runner.__slots__


async def test_a_frozen_process_does_nothing_and_goes_on_later() -> None:
    let_processes_freeze()
    process = Process("broker1")
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await trio.sleep(1)
            ticks.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        PROCESS.set(process)
        nursery.start_soon(tick)
        PROCESS.set(None)
        began = trio.current_time()
        await trio.sleep(2.5)
        process.freeze()
        await trio.sleep(10)
        process.thaw()
        await trio.sleep(1.5)
        nursery.cancel_scope.cancel()
    assert [round(at - began, 1) for at in ticks] == [1, 2, 12.5, 13.5]


@pytest.mark.parametrize(
    "call",
    [
        lambda: time.time(),
        lambda: time.monotonic_ns(),
        lambda: os.urandom(1),
        lambda: random.random(),
        lambda: random.choice([1]),
        lambda: uuid.uuid4(),
        lambda: threading.Thread().start(),
    ],
)
def test_a_call_past_env_raises_in_our_modules_and_nowhere_else(call: Callable[[], None]) -> None:
    assert isinstance(call, FunctionType)
    ours = FunctionType(call.__code__, {**globals(), "__name__": f"{OURS}broker.x"})
    with guarded():
        call()
        with pytest.raises(PastEnv):
            ours()
    ours()
