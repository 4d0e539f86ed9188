"""A model of the sink's commit in group mode, as `client/spark/commit.py` has it.

Tasks. Each attempt of a task has a transaction that no other attempt uses. It reads the hint: if
its batch is decided it writes nothing and says so. Else it opens the transaction, writes, reads the
hint again, and then aborts the transaction or detaches it. It may be slow: it opens or ends after
the decision just as well. A hint may be out of date.

A driver. Spark gives it one message of each task. It does these steps:

1. *acquire*: it starts a producer with the driver's transactional id. That fences every earlier
   driver, and aborts what that left open under this id. If the last transaction of the id was
   decided, this waits for its markers, so a decision is readable from here on.
2. *claim*: it writes the decision's record, in a transaction of this id. The relayed records of
   tasks are in the same transaction. (Before it decides, it aborts the attempts of its run that
   were not chosen. For the model that is what a time-out may do to them at any time.)
3. *read*: it reads the decisions before that record. If there is one for this batch, the batch is
   skipped. If there is one for a newer batch, the driver stops: it is stale.
4. *decide*: one request ends this transaction, as the leader of a transaction group, and those of
   all chosen attempts. Its answer may be lost. It is repeated with the same decision id.
5. *clean*: it aborts what is open of this batch and of earlier ones.
6. *abort*: Spark calls it instead of 5 after an error. It ends the transactions in the messages.

The broker may fail over between any two steps. A deposed leader or coordinator answers a read with
anything that was true once; it stores nothing. An append of the decision may be uncertain: its
client gets no answer, and nothing of the group moves until the next coordinator has read the log,
where the decision is or is not.

Every process may stop for ever between any two steps: it just has no further step. Spark runs a
batch again in another run, whether the first one died or only seems to have. It begins a batch when
one run has noted the batch before as committed. A time-out may abort any open transaction at any
time.

A batch may be written to several targets, as in foreachBatch. Each has drivers, attempts and
decisions of its own, and Spark notes the batch as committed when one run has written it to all.

`explore` goes through all states that are reachable, and returns the first violation. `Protocol`
has the variants that leave out one part of it: each must be found to violate an invariant, or the
model would prove nothing.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import product
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """The protocol, or a variant without one of its parts."""

    is_one_decision: bool = True
    """All transactions end by one request, not one after the other."""
    has_leader: bool = True
    """The driver's transaction, which fences other drivers, is in the group."""
    reads_decision: bool = True
    """A batch that is decided is not decided again."""
    claims_first: bool = True
    """The decisions are read after the claim was stored, so no deposed leader can answer."""
    stops_when_stale: bool = True
    """A driver that finds a newer batch decided stops."""
    cleans_last: bool = True
    """What is left open is aborted after the decision, and not before."""
    abort_is_checked: bool = True
    """The broker refuses to abort a transaction that is decided."""
    waits_for_log: bool = True
    """After an uncertain append nothing of the group moves until the log was read."""
    has_targets: bool = True
    """A decision counts for its target alone."""


class Attempt(IntEnum):
    """The state of an attempt of a task, and of its transaction."""

    BEGINS = 0
    OPEN = 1
    READY = 2
    """Detached. The driver has, or may get, its message."""
    LATE = 3
    """It found its batch decided, and says so in its message. Nothing is open."""
    COMMITTED = 4
    ABORTED = 5
    CLEANED = 6
    """Aborted by a driver's step 5, which may have been another run's."""


IS_OPEN: Final = (Attempt.OPEN, Attempt.READY)


class Step(IntEnum):
    """The next step of a driver."""

    ACQUIRE = 0
    CLAIM = 1
    READ = 2
    DECIDE = 3
    AGAIN = 4
    """There was no answer: the same request once more."""
    CLEAN = 5
    RETURN = 6
    ABORT = 7
    END = 8
    """It has failed."""
    RETURNED = 9


class Driver(NamedTuple):
    """The commit of one batch in one run: its next step, and the attempts that Spark has chosen."""

    step: Step = Step.ACQUIRE
    chosen: tuple[int, ...] = ()
    rest: tuple[int, ...] = ()
    """Of the chosen ones, those that are still to be ended."""


NOBODY: Final = -1


class Decision(NamedTuple):
    batch: int
    target: int
    driver: int
    members: tuple[int, ...]


class World(NamedTuple):
    attempts: tuple[Attempt, ...]
    drivers: tuple[Driver, ...]
    in_charge: tuple[int, ...] = (NOBODY,)
    """For each target the driver that acquired last. Every other one is fenced."""
    is_claimed: tuple[bool, ...] = (False,)
    """Its transaction is open, with the decision's record in it."""
    decisions: tuple[Decision, ...] = ()
    """The decisions that the log has, in their order."""
    uncertain: Decision | None = None
    """A decision that may be in the log or not: the next coordinator will know."""
    done: int = 0
    """The number of batches that Spark has noted as committed."""


class Job:
    """A query of `batches` batches of `tasks` tasks, in `runs` runs, to `targets` targets.

    `twice` names the runs in which the first task of each batch has a second attempt.
    """

    def __init__(
        self,
        tasks: int,
        runs: int,
        *,
        batches: int = 1,
        targets: int = 1,
        twice: tuple[int, ...] = (0,),
    ) -> None:
        self.tasks: Final = range(tasks)
        self.targets: Final = range(targets)
        self.batches: Final = batches
        self.places: Final = [
            (batch, run, target, task)
            for batch in range(batches)
            for run in range(runs)
            for target in self.targets
            for task in self.tasks
            for _ in range(2 if task == 0 and run in twice else 1)
        ]
        """The batch, run, target and task of each attempt."""
        self.commits: Final = list(product(range(batches), range(runs), self.targets))
        """The batch, run and target of each driver."""

    def begin(self) -> World:
        return World(
            attempts=(Attempt.BEGINS,) * len(self.places),
            drivers=(Driver(),) * len(self.commits),
            in_charge=(NOBODY,) * len(self.targets),
            is_claimed=(False,) * len(self.targets),
        )

    def choices(self, world: World, number: int) -> Iterator[tuple[int, ...]]:
        """Yield what Spark may give to a driver: an attempt of each task that has a message."""
        commit = self.commits[number]
        with_message = (Attempt.READY, Attempt.LATE)
        yield from product(
            *(
                [
                    attempt
                    for attempt, place in enumerate(self.places)
                    if place == (*commit, task) and world.attempts[attempt] in with_message
                ]
                for task in self.tasks
            )
        )


def explore(job: Job, protocol: Protocol, states_max: int = 3_000_000) -> tuple[int, str]:
    """Return the number of states, and the first violation with its trace; "" if there is none."""
    first = job.begin()
    came_from: dict[World, tuple[World, str] | None] = {first: None}
    waiting = deque([first])
    while waiting:
        world = waiting.popleft()
        wrong = violation(job, world)
        if wrong:
            return len(came_from), f"{wrong}: {trace(came_from, world)}"
        for following, what in steps(job, protocol, world):
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


def violation(job: Job, world: World) -> str:
    for target in job.targets:
        wrong = _violation_at(job, world, target)
        if wrong:
            return wrong
    members = sorted(member for decision in world.decisions for member in decision.members)
    if members != [n for n, state in enumerate(world.attempts) if state is Attempt.COMMITTED]:
        return "not what was decided"
    return ""


def _violation_at(job: Job, world: World, target: int) -> str:
    decided = [decision.batch for decision in world.decisions if decision.target == target]
    if len(set(decided)) != len(decided):
        return "twice"
    if decided != sorted(decided):
        return "an older batch after a newer one"
    here = [(n, place) for n, place in enumerate(job.places) if place[2] == target]
    for batch in range(job.batches):
        tasks = [
            place[3]
            for number, place in here
            if place[0] == batch and world.attempts[number] is Attempt.COMMITTED
        ]
        if len(tasks) != len(set(tasks)):
            return "twice"
        if tasks and len(tasks) != len(job.tasks):
            return "half"
        if batch not in decided:
            if tasks:
                return "not decided"
            if batch < world.done:
                return "lost"
    for number, place in here:
        if world.attempts[number] is Attempt.CLEANED and place[0] not in decided:
            return "cleaned although it may be needed"
    return ""


def steps(job: Job, protocol: Protocol, world: World) -> Iterator[tuple[World, str]]:
    """Yield every state that may follow, and what has happened."""
    if world.uncertain is not None:
        for following in _read_log(world, world.uncertain):
            yield following, "the next coordinator reads the log"
    moves = world.uncertain is None or not protocol.waits_for_log
    for number, (batch, *_) in enumerate(job.places):
        if moves and world.attempts[number] in IS_OPEN:
            yield _ended(world, (number,), Attempt.ABORTED), f"time-out of attempt {number}"
        if batch <= world.done:
            for state in _attempt(job, protocol, world, number, moves=moves):
                yield _in_state(world, number, state), f"attempt {number}: {state.name.lower()}"
    for number, (batch, *_) in enumerate(job.commits):
        if moves and batch <= world.done:
            what = f"{world.drivers[number].step.name.lower()} of driver {number}"
            for following in _commit(job, protocol, world, number):
                yield following, what


def _attempt(
    job: Job, protocol: Protocol, world: World, number: int, *, moves: bool
) -> Iterator[Attempt]:
    """Yield the states that an attempt of a task may come to by itself."""
    state = world.attempts[number]
    batch, _, target, _ = job.places[number]
    is_decided = any(each.batch >= batch for each in _counting(protocol, world, target))
    if state is Attempt.BEGINS:
        if is_decided:
            yield Attempt.LATE
        if moves:  # a hint that is out of date does not have the decision
            yield Attempt.OPEN
    elif state is Attempt.OPEN and moves:
        if is_decided:
            yield Attempt.LATE
        yield Attempt.READY


def _commit(job: Job, protocol: Protocol, world: World, number: int) -> Iterator[World]:
    """Yield what the next step of a driver may lead to."""
    driver = world.drivers[number]
    target = job.commits[number][2]
    is_leader = world.in_charge[target] == number
    failed = _set(world, number, driver._replace(step=Step.ABORT))
    if driver.step is Step.ACQUIRE:
        for chosen in job.choices(world, number):
            first = Step.CLAIM if protocol.claims_first else Step.READ
            began = _set(world, number, Driver(first, chosen, chosen))
            # What the driver before has left open under this id is aborted.
            yield began._replace(
                in_charge=_with(world.in_charge, target, number),
                is_claimed=_with(world.is_claimed, target, False),
            )
    elif driver.step is Step.CLAIM:
        following = Step.READ if protocol.claims_first else Step.DECIDE
        claimed = _set(world, number, driver._replace(step=following))
        is_claimed = _with(world.is_claimed, target, True)
        yield claimed._replace(is_claimed=is_claimed) if is_leader else failed
    elif driver.step is Step.READ:
        for known in _answers(protocol, world, target):
            yield _set(world, number, _after_reading(job, protocol, world, number, known))
    elif driver.step in (Step.DECIDE, Step.AGAIN):
        yield failed  # it gives up, or is told that it is fenced by a coordinator that is deposed
        yield from _decide(job, protocol, world, number)
    elif driver.step is Step.CLEAN:
        yield _cleaned(job, world, number, Step.RETURN)
    elif driver.step is Step.RETURN:
        ended = _set(world, number, Driver(Step.RETURNED))
        batch, run, _ = job.commits[number]
        of_run = [n for n, commit in enumerate(job.commits) if commit[:2] == (batch, run)]
        is_done = all(ended.drivers[other].step is Step.RETURNED for other in of_run)
        yield ended._replace(done=max(world.done, batch + 1)) if is_done else ended
    elif driver.step is Step.ABORT:
        may_end = IS_OPEN if protocol.abort_is_checked else (*IS_OPEN, Attempt.COMMITTED)
        aborted = _ended(world, driver.chosen, Attempt.ABORTED, of=may_end)
        yield _set(aborted, number, Driver(Step.END))


def _counting(protocol: Protocol, world: World, target: int) -> tuple[Decision, ...]:
    """Return the decisions that count for a target."""
    return tuple(
        each for each in world.decisions if each.target == target or not protocol.has_targets
    )


def _answers(protocol: Protocol, world: World, target: int) -> Iterator[tuple[Decision, ...]]:
    """Yield the decisions that a reader may be told.

    The leader that has just stored the claim knows all. Another one knows those up to some time.
    """
    decisions = _counting(protocol, world, target)
    if not protocol.reads_decision:
        yield ()
    elif protocol.claims_first:
        yield decisions
    else:
        for count in range(len(decisions) + 1):
            yield decisions[:count]


def _after_reading(
    job: Job, protocol: Protocol, world: World, number: int, known: tuple[Decision, ...]
) -> Driver:
    """Return how a driver goes on that knows these decisions."""
    driver = world.drivers[number]
    batch = job.commits[number][0]
    newest = max((decision.batch for decision in known), default=NOBODY)
    if newest > batch and protocol.stops_when_stale:
        return driver._replace(step=Step.ABORT)
    if newest == batch:
        return driver._replace(step=Step.CLEAN)
    if any(world.attempts[chosen] is Attempt.LATE for chosen in driver.chosen):
        return driver._replace(
            step=Step.ABORT
        )  # refused: a task found a decision that is not there
    return driver._replace(step=Step.DECIDE if protocol.claims_first else Step.CLAIM)


def _decide(job: Job, protocol: Protocol, world: World, number: int) -> Iterator[World]:
    driver = world.drivers[number]
    batch, _, target = job.commits[number]
    answered = _set(world, number, driver._replace(step=Step.CLEAN))
    unanswered = _set(world, number, driver._replace(step=Step.AGAIN))
    failed = _set(world, number, driver._replace(step=Step.ABORT))
    is_in_charge = world.in_charge[target] == number
    leads = is_in_charge and world.is_claimed[target]
    decision = Decision(batch, target, number, driver.chosen)
    if driver.step is Step.AGAIN and is_in_charge and decision in world.decisions:
        yield answered  # known by its decision id
        return
    yield unanswered  # the request was lost
    if protocol.has_leader and not leads:
        yield failed
        return
    if not protocol.cleans_last:
        world = _cleaned(job, world, number, driver.step)
    if not protocol.is_one_decision:
        yield from _decide_one_by_one(world, decision)
        return
    if any(world.attempts[member] not in IS_OPEN for member in driver.chosen):
        yield failed
        return
    decided = _decided(world, decision)
    yield _set(decided, number, driver._replace(step=Step.CLEAN))
    yield _set(decided, number, driver._replace(step=Step.AGAIN))  # the answer was lost
    if world.uncertain is None:
        # The coordinator is deposed while it appends.
        yield _set(world, number, driver._replace(step=Step.AGAIN))._replace(uncertain=decision)


def _decide_one_by_one(world: World, decision: Decision) -> Iterator[World]:
    number = decision.driver
    driver = world.drivers[number]
    member, *rest = driver.rest
    if world.attempts[member] not in IS_OPEN:
        yield _set(world, number, driver._replace(step=Step.ABORT))
        return
    ended = _ended(world, (member,), Attempt.COMMITTED)
    if rest:
        yield _set(ended, number, driver._replace(rest=tuple(rest), step=Step.DECIDE))
    else:
        decided = _decided(ended, decision)
        yield _set(decided, number, driver._replace(step=Step.CLEAN))


def _read_log(world: World, uncertain: Decision) -> Iterator[World]:
    """Yield what the next coordinator may find: without the uncertain decision, and with it.

    A member that has ended meanwhile has a newer record, which counts.
    """
    known = world._replace(uncertain=None)
    yield known
    yield _decided(known, uncertain)


def _decided(world: World, decision: Decision) -> World:
    """Return the world after the append of a decision."""
    ended = _ended(world, decision.members, Attempt.COMMITTED)
    return ended._replace(
        decisions=(*world.decisions, decision),
        is_claimed=_with(world.is_claimed, decision.target, False),
    )


def _cleaned(job: Job, world: World, number: int, step: Step) -> World:
    """Return the world after a driver has cleaned up; the broker refuses what is decided."""
    batch, _, target = job.commits[number]
    driver = world.drivers[number]
    old = tuple(
        attempt
        for attempt, place in enumerate(job.places)
        if place[0] <= batch and place[2] == target and attempt not in driver.chosen
    )
    cleaned = _ended(world, old, Attempt.CLEANED)
    return _set(cleaned, number, driver._replace(step=step))


def _ended(
    world: World,
    numbers: tuple[int, ...],
    end: Attempt,
    of: tuple[Attempt, ...] = IS_OPEN,
) -> World:
    """Return the world after those of some transactions that are open have ended."""
    attempts = tuple(
        end if number in numbers and before in of else before
        for number, before in enumerate(world.attempts)
    )
    return world._replace(attempts=attempts)


def _in_state(world: World, number: int, state: Attempt) -> World:
    return world._replace(attempts=_with(world.attempts, number, state))


def _set(world: World, number: int, driver: Driver) -> World:
    return world._replace(drivers=_with(world.drivers, number, driver))


def _with(values: tuple[T, ...], number: int, value: T) -> tuple[T, ...]:
    return (*values[:number], value, *values[number + 1 :])
