"""Regular expressions from strangers, matched in time that grows with the text and no faster.

Kafka takes patterns in RE2's syntax, which leaves out what can only be matched by backtracking.
Python's `re` backtracks, and holds up everything else in the process while it does: one pattern
like `(a*)*b` and one long text would stop the broker, in a thread too. So a pattern is compiled
(`pattern_syntax.py` reads it) to a program whose states are all followed at once. Sets of states
that were met are remembered together with where each character leads from them, so that a usual
pattern costs one dictionary look-up per character.

A match lets other tasks run now and then, and all matches of one pattern together have a budget.
"""

from dataclasses import dataclass, field
from enum import IntFlag
from typing import Final, NamedTuple

import trio

from odradek.broker.pattern_syntax import (
    Assertion,
    BadPattern,
    CharClass,
    Chars,
    Choice,
    Node,
    Place,
    Repeat,
    Sequence,
    is_word,
    parse,
)

INSTRUCTIONS_MAX: Final = 5_000
EMITTED_MAX: Final = 20_000
"""Parts of the pattern that are compiled, each as often as it is repeated."""
MEMORY_MAX: Final = 10_000
"""Sets of states and steps between them that are remembered before it begins anew."""
STATE_WORK: Final = 10
"""What looking at one state costs, measured in characters whose step is remembered."""
WORK_MAX: Final = 30_000_000
"""What all matches of one pattern may cost together: a few seconds."""
WORK_BETWEEN_YIELDS: Final = 30_000


@dataclass(slots=True)
class Instruction:
    """One state: the next ones without a condition, after a character, or at a kind of place."""

    following: list[int] = field(default_factory=list)
    chars: CharClass | None = None
    place: Place | None = None


class Before(IntFlag):
    """What stands before a place in the text, as far as assertions ask."""

    NOTHING = 1
    NEWLINE = 2
    WORD = 4


class States(NamedTuple):
    """Where a match may be after some characters; the start is `before=NOTHING`."""

    before: Before
    numbers: frozenset[int]


class Pattern:
    """Raises BadPattern for what is no pattern, or one too large."""

    def __init__(self, text: str, *, work_max: int = WORK_MAX) -> None:
        self._work_max = work_max
        self._program: list[Instruction] = []
        self._emitted = 0
        self._end = self._new()
        start = self._emit(parse(text), self._end)
        self._has_places = any(each.place is not None for each in self._program)
        self._start = States(self._before(""), frozenset([start]))
        self._steps: dict[States, dict[str, States]] = {}
        self._ends: dict[States, bool] = {}
        self._remembered = 0
        self._work = 0
        self._work_at_yield = 0

    async def matches(self, text: str) -> bool:
        """Whether the whole of `text` matches. Raises BadPattern when the budget is used up."""
        states = self._start
        for char in text:
            known = self._steps.get(states)
            following = None if known is None else known.get(char)
            if following is None:
                following = self._step(states, char)
            self._work += 1
            if self._work - self._work_at_yield >= WORK_BETWEEN_YIELDS:
                await self._rest()
            if not following.numbers:
                return False
            states = following
        is_match = self._ends.get(states)
        if is_match is None:
            is_match = self._ends[states] = self._end in self._reach(states, "")
            self._remember()
        return is_match

    async def _rest(self) -> None:
        if self._work > self._work_max:
            raise BadPattern("it takes too long to match")
        self._work_at_yield = self._work
        await trio.lowlevel.checkpoint()

    def _step(self, states: States, char: str) -> States:
        numbers = set()
        for number in self._reach(states, char):
            instruction = self._program[number]
            if instruction.chars is not None and instruction.chars.has(char):
                numbers.update(instruction.following)
        following = States(self._before(char), frozenset(numbers))
        self._remember()
        self._steps.setdefault(states, {})[char] = following
        return following

    def _remember(self) -> None:
        self._remembered += 1
        if self._remembered > MEMORY_MAX:
            self._steps.clear()
            self._ends.clear()
            self._remembered = 0

    def _reach(self, states: States, after: str) -> set[int]:
        """Every state that is reached without a character; `after` is the next one, "" at the end.

        A list of what is still to be looked at, as a program may be as deep as it is long.
        """
        reached = set(states.numbers)
        todo = list(reached)
        while todo:
            instruction = self._program[todo.pop()]
            if instruction.chars is not None:
                continue
            if instruction.place and not _is_at(instruction.place, states.before, after):
                continue
            for number in instruction.following:
                if number not in reached:
                    reached.add(number)
                    todo.append(number)
        self._work += STATE_WORK * len(reached)
        return reached

    def _before(self, char: str) -> Before:
        if not self._has_places:
            return Before(0)
        if not char:
            return Before.NOTHING
        return Before.NEWLINE if char == "\n" else Before.WORD if is_word(char) else Before(0)

    # compiling: from the end to the start, so that what follows is always there

    def _new(self) -> int:
        if len(self._program) >= INSTRUCTIONS_MAX:
            raise BadPattern("it is too large")
        self._program.append(Instruction())
        return len(self._program) - 1

    def _emit(self, node: Node, following: int) -> int:
        """Add what matches `node` and goes on at `following`; where it starts."""
        self._emitted += 1  # repeating what is empty makes no instructions and takes its time
        if self._emitted > EMITTED_MAX:
            raise BadPattern("it is too large")
        match node:
            case Chars():
                number = self._new()
                self._program[number] = Instruction([following], chars=node.chars)
            case Assertion():
                number = self._new()
                self._program[number] = Instruction([following], place=node.place)
            case Sequence():
                number = following
                for item in reversed(node.items):
                    number = self._emit(item, number)
            case Choice():
                number = self._new()
                for option in node.options:
                    self._program[number].following.append(self._emit(option, following))
            case Repeat():
                number = self._emit_repeat(node, following)
        return number

    def _emit_repeat(self, node: Repeat, following: int) -> int:
        number = following
        if node.most is None:
            number = self._new()
            again = self._emit(node.item, number)
            self._program[number].following += [again, following]
        else:
            for _ in range(node.most - node.least):
                optional = self._new()
                self._program[optional].following += [self._emit(node.item, number), following]
                number = optional
        for _ in range(node.least):
            number = self._emit(node.item, number)
        return number


def _is_at(place: Place, before: Before, after: str) -> bool:
    match place:
        case Place.TEXT_START:
            return Before.NOTHING in before
        case Place.TEXT_END:
            return not after
        case Place.LINE_START:
            return bool(before & (Before.NOTHING | Before.NEWLINE))
        case Place.LINE_END:
            return after in ("", "\n")
        case Place.WORD_BOUNDARY:
            return (Before.WORD in before) != is_word(after)
        case Place.NO_WORD_BOUNDARY:
            return (Before.WORD in before) == is_word(after)
