"""A model of a sink whose tasks write in transactions of their own, and whose driver commits them.

A batch is written by tasks. Each attempt of a task has a transaction that no other attempt uses.
Spark tells the driver which attempt of each task has won. The driver commits:

1. *acquire*: it starts a producer with the driver's transactional id, which fences every earlier
   driver and aborts what that left open under this id.
2. *read*: it reads the decision. A batch that is decided is not decided again.
3. *write*: it writes the decision in a transaction of the driver's id.
4. *decide*: one request ends this transaction, as the leader of a transaction group, and those of
   all winners.
5. *clean*: it aborts every open transaction of the batch that is not in the decision.

Spark runs a batch again in another run when the first one has failed, and also when it only seems
to have: a driver that was given up may still be alive, and go on at any time. Any process may stop
for ever between any two steps. A time-out may abort any open transaction at any time. An answer may
be lost, so that the request is sent again.

`explore` goes through all states that are reachable, and returns the first violation. `Protocol`
has the variants that leave out one part of it: each must be found to violate an invariant, or the
model would prove nothing.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """The protocol, or a variant without one of its parts."""

    is_one_decision: bool = True
    """All transactions end by one request, not one after the other."""
    has_leader: bool = True
    """The driver's transaction, which fences other drivers, is in the group."""
    reads_decision: bool = True
    """A batch that is decided is not decided again."""


class End(IntEnum):
    OPEN = 0
    COMMITTED = 1
    ABORTED = 2


class Step(IntEnum):
    """The next step of a driver's commit."""

    ACQUIRE = 0
    READ = 1
    WRITE = 2
    DECIDE = 3
    AGAIN = 4
    """The answer was lost: the same request once more."""
    CLEAN = 5
    RETURN = 6
    DONE = 7
    FAILED = 8


class Driver(NamedTuple):
    """One run's commit: its next step, its epoch, and what it has still to do."""

    step: Step = Step.ACQUIRE
    epoch: int = 0
    winners: tuple[int, ...] = ()
    rest: tuple[int, ...] = ()


class World(NamedTuple):
    transactions: tuple[End, ...]
    drivers: tuple[Driver, ...]
    epoch: int = 0
    """The epoch of the driver's transactional id."""
    is_writing: bool = False
    """Its transaction is open, with a decision in it."""
    decided: tuple[int, ...] = ()
    """The decision that readers see: the transactions of a run's winners."""
    is_done: bool = False
    """Spark has noted the batch as committed."""


class Batch:
    """A batch of `tasks` tasks in `runs` runs; the first task of each run has two attempts."""

    def __init__(self, tasks: int, runs: int) -> None:
        self.tasks: Final = range(tasks)
        self.runs: Final = range(runs)
        self.attempts: Final = [
            (run, task, attempt)
            for run in self.runs
            for task in self.tasks
            for attempt in range(2 if task == 0 else 1)
        ]

    def task_of(self, transaction: int) -> int:
        return self.attempts[transaction][1]

    def winners_of(self, run: int) -> list[tuple[int, ...]]:
        """Return what Spark may tell the driver of a run: one attempt of each task."""
        ours = [number for number, attempt in enumerate(self.attempts) if attempt[0] == run]
        first = [number for number in ours if self.task_of(number) == 0]
        others = tuple(number for number in ours if self.task_of(number) != 0)
        return [(number, *others) for number in first]

    def begin(self) -> World:
        return World(
            transactions=(End.OPEN,) * len(self.attempts),
            drivers=(Driver(),) * len(self.runs),
        )


def explore(batch: Batch, protocol: Protocol, states_max: int = 2_000_000) -> tuple[int, str]:
    """Return the number of states, and the first violation with its trace; "" if there is none."""
    first = batch.begin()
    came_from: dict[World, tuple[World, str] | None] = {first: None}
    waiting = deque([first])
    while waiting:
        world = waiting.popleft()
        wrong = violation(batch, world)
        if wrong:
            return len(came_from), f"{wrong}: {trace(came_from, world)}"
        for following, what in steps(batch, protocol, world):
            if following not in came_from:
                came_from[following] = world, what
                waiting.append(following)
        assert len(came_from) <= states_max, "too many states"
    return len(came_from), ""


def trace(came_from: dict[World, tuple[World, str] | None], world: World) -> str:
    words: list[str] = []
    while (before := came_from[world]) is not None:
        world, what = before
        words.append(what)
    return " > ".join(reversed(words))


def violation(batch: Batch, world: World) -> str:
    committed = [n for n, end in enumerate(world.transactions) if end is End.COMMITTED]
    tasks = [batch.task_of(number) for number in committed]
    if len(tasks) != len(set(tasks)):
        return "twice"
    if committed and len(tasks) != len(batch.tasks):
        return "half"
    if world.decided and tuple(committed) != tuple(sorted(world.decided)):
        return "not what was decided"
    if world.is_done and not committed:
        return "lost"
    return ""


def steps(batch: Batch, protocol: Protocol, world: World) -> Iterator[tuple[World, str]]:
    """Yield every state that may follow, and what has happened."""
    for number, end in enumerate(world.transactions):
        if end is End.OPEN:
            yield _ended(world, (number,), End.ABORTED), f"time-out of {batch.attempts[number]}"
    for run in batch.runs:
        for following in _commit(batch, protocol, world, run):
            yield following, f"{world.drivers[run].step.name.lower()} {run}"


def _commit(batch: Batch, protocol: Protocol, world: World, run: int) -> Iterator[World]:
    """Yield what the next step of a run's commit may lead to."""
    driver = world.drivers[run]
    if driver.step is Step.ACQUIRE:
        for winners in batch.winners_of(run):
            began = Driver(Step.READ, world.epoch + 1, winners, winners)
            # What the driver before has left open under this id is aborted.
            yield _set(world, run, began)._replace(epoch=world.epoch + 1, is_writing=False)
    elif driver.step is Step.READ:
        is_decided = bool(world.decided) and protocol.reads_decision
        yield _set(world, run, driver._replace(step=Step.CLEAN if is_decided else Step.WRITE))
    elif driver.step is Step.WRITE:
        if driver.epoch != world.epoch:
            yield _set(world, run, driver._replace(step=Step.FAILED))
        else:
            written = _set(world, run, driver._replace(step=Step.DECIDE))
            yield written._replace(is_writing=True)
    elif driver.step in (Step.DECIDE, Step.AGAIN):
        yield from _decide(protocol, world, run)
    elif driver.step is Step.CLEAN:
        rest = _losers(batch, world, world.decided)
        yield _set(_ended(world, rest, End.ABORTED), run, driver._replace(step=Step.RETURN))
    elif driver.step is Step.RETURN:
        yield _set(world, run, driver._replace(step=Step.DONE))._replace(is_done=True)


def _decide(protocol: Protocol, world: World, run: int) -> Iterator[World]:
    driver = world.drivers[run]
    failed = _set(world, run, driver._replace(step=Step.FAILED))
    if driver.step is Step.AGAIN and world.decided == driver.winners:  # known by its decision id
        yield _set(world, run, driver._replace(step=Step.CLEAN))
        return
    leads = driver.epoch == world.epoch and world.is_writing
    if protocol.has_leader and not leads:
        yield failed
        return
    if not protocol.is_one_decision:
        number, *rest = driver.rest
        if world.transactions[number] is not End.OPEN:
            yield failed
            return
        after = driver._replace(rest=tuple(rest), step=Step.DECIDE if rest else Step.CLEAN)
        ended = _set(_ended(world, (number,), End.COMMITTED), run, after)
        yield ended if rest else ended._replace(decided=driver.winners, is_writing=False)
        return
    if any(world.transactions[number] is not End.OPEN for number in driver.winners):
        yield failed
        return
    decided = _ended(world, driver.winners, End.COMMITTED)._replace(
        decided=driver.winners, is_writing=False
    )
    yield _set(decided, run, driver._replace(step=Step.CLEAN))
    yield _set(decided, run, driver._replace(step=Step.AGAIN))  # the answer was lost
    if driver.step is Step.DECIDE:
        yield _set(world, run, driver._replace(step=Step.AGAIN))  # the request was lost


def _losers(batch: Batch, world: World, kept: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(
        number
        for number, end in enumerate(world.transactions)
        if end is End.OPEN and number not in kept
    )


def _ended(world: World, numbers: tuple[int, ...], end: End) -> World:
    transactions = tuple(
        end if number in numbers else before for number, before in enumerate(world.transactions)
    )
    return world._replace(transactions=transactions)


def _set(world: World, run: int, driver: Driver) -> World:
    drivers = (*world.drivers[:run], driver, *world.drivers[run + 1 :])
    return world._replace(drivers=drivers)
