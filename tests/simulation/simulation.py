"""One seed: a world under load and faults, then healed, judged, read and checked."""

import gc
import logging
import traceback
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import PurePath
from time import process_time

import trio
import trio.testing

from tests.checker.check import check
from tests.checker.members import check_members
from tests.simulation.faults import Fault
from tests.simulation.guard import guarded
from tests.simulation.judges import Watch
from tests.simulation.liveness import Lame, until_at_rest
from tests.simulation.load import Load
from tests.simulation.plan import Plan
from tests.simulation.scheduling import deterministic, let_processes_freeze
from tests.simulation.world import Trace, World

HEAL_SECONDS = 90.0


@dataclass
class Outcome:
    """What came of a seed."""

    plan: Plan
    violations: list[str] = field(default_factory=list)
    marks: Counter[str] = field(default_factory=Counter)
    digest: str = ""
    lines: list[str] | None = None
    seconds: float = 0.0
    """Simulated seconds."""
    cpu_seconds: float = 0.0
    committed: int = 0

    @property
    def summary(self) -> str:
        return (
            f"seed {self.plan.seed}: {self.committed} committed in {self.seconds:.1f} s, "
            f"{self.cpu_seconds:.1f} s of CPU, trace {self.digest}"
        )


def simulate(plan: Plan, *, keeps_lines: bool = False) -> Outcome:
    """Run one seed."""
    outcome = Outcome(plan)
    trace = Trace(keeps_lines=keeps_lines)
    logger = logging.getLogger("odradek")
    before = logger.level, logger.propagate
    logger.addHandler(trace)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    clock = trio.testing.MockClock(autojump_threshold=0)
    began = process_time()
    gc.collect()
    gc.disable()
    try:
        with guarded(), deterministic(plan.seed):
            trio.run(_run, plan, trace, outcome, clock=clock)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        outcome.violations.append(f"the run ended with {_flat(error)}")
    finally:
        gc.enable()
        logger.removeHandler(trace)
        logger.setLevel(before[0])
        logger.propagate = before[1]
    outcome.violations += trace.tracebacks
    outcome.cpu_seconds = process_time() - began
    outcome.digest, outcome.lines = trace.digest, trace.lines
    return outcome


def _flat(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    cause = error.__cause__
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{PurePath(where.filename).name}:{where.lineno}"
    return f"{error!r} at {place}" + (f" from {_flat(cause)}" if cause is not None else "")


async def _run(plan: Plan, trace: Trace, outcome: Outcome) -> None:
    let_processes_freeze()
    async with trio.open_nursery() as nursery:
        world = World(
            nursery,
            brokers=plan.brokers,
            seed=plan.seed,
            properties=plan.properties,
            trace=trace,
            stall_probability=plan.stall_probability,
        )
        outcome.marks = world.marks
        try:
            await _live(plan, world, outcome)
        finally:
            outcome.seconds = trio.current_time()
            for machine in world.machines.values():
                machine.resume()
            nursery.cancel_scope.cancel()


async def _live(plan: Plan, world: World, outcome: Outcome) -> None:
    load = Load(world, transaction_timeout_ms=plan.transaction_timeout_ms, rare=plan.rare)
    for machine in world.machines.values():
        world.live(machine)
    await world.all_registered()
    await load.prepare()
    if plan.has_old_producers:
        await load.make_producers_old()
    async with trio.open_nursery() as nursery:
        watch = Watch(world, outcome.violations)
        watching = await nursery.start(watch.run)
        async with trio.open_nursery() as running:
            running.start_soon(load.run)
            await _strike(plan, world)
            world.trace("heal")
            with trio.move_on_after(HEAL_SECONDS) as healing:
                await world.heal()
            if healing.cancelled_caught:
                outcome.violations.append("liveness: a broker does not serve after all was healed")
                running.cancel_scope.cancel()
            load.stop.set()
            with trio.move_on_after(HEAL_SECONDS) as ending:
                await load.ended.wait()
            if ending.cancelled_caught:
                outcome.violations.append("liveness: a client does not come to its end")
                running.cancel_scope.cancel()
        outcome.committed = load.journal.committed
        watching.cancel()
    if outcome.violations:
        return
    try:
        await until_at_rest(world)
        if world.net.left:
            world.end_left_cuts()
            await until_at_rest(world)
        history = await load.history()
    except Lame as error:
        outcome.violations.append(f"liveness: {error}")
        return
    outcome.violations += [str(anomaly) for anomaly in check(history)]
    if load.crowd is not None:
        outcome.violations += [str(each) for each in check_members(load.crowd.history)]
    if load.application is not None:
        outcome.violations += [str(each) for each in load.application.wrong_copies(history)]
    if load.anew is not None:
        outcome.violations += load.anew.violations
    if load.rights is not None:
        outcome.violations += load.rights.violations
    outcome.violations += watch.at_rest()


async def _strike(plan: Plan, world: World) -> None:
    """Let the load run, and let every fault happen at its time."""
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number, fault in plan.chosen():
            await trio.sleep_until(began + fault.at)
            world.trace("fault", number, fault)
            nursery.start_soon(_strike_one, world, fault)
        await trio.sleep_until(began + plan.seconds)


async def _strike_one(world: World, fault: Fault) -> None:
    with world.held_up() if fault.HOLDS_UP else nullcontext():
        await fault.strike(world)
