"""What a story is: a function that asks a broker things, in one or several variants.

    @variants(version=range(6))
    def story_new_id(broker: Broker, version: int) -> None:
        broker.init("x", version=version)

Every function named `story_...` of a module in the catalogue is found; its id is the module, the
name and the variant: `init.new_id[version=3]`.
"""

import inspect
import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

from odradek.protocol.state_topics import TransactionLogValue
from tests.judge.broker import Broker
from tests.judge.hurry import ATTEMPTS, Hurry

PREFIX: Final = "story_"
LIVE_SEEDS: Final = 25
"""So many of the stories that dice are told to a live Kafka each time."""
_VARIANTS: Final = "judge_variants"
_PLANTED: Final = "judge_planted"
_HOUSE: Final = "judge_house"
_RECORDING: Final = "judge_recording"
_ATTEMPTS: Final = "judge_attempts"
SHARED: Final = "shared"
BRIEF: Final = "brief"
GIVING_UP: Final = "giving up"

Tell = Callable[..., Hurry | None]
"""What it returns, if anything, has to be over when the logs in the end have been read, too."""


@dataclass(frozen=True, slots=True)
class Story:
    """One variant of one function. `house`: with which settings its brokers run;
    `recording`: the file that has Kafka's answers, if not the module's; `attempts`: how often it is
    told at most, if it is told too slowly (`hurry.py`)."""

    id: str
    tell: Tell
    arguments: dict[str, Any] = field(default_factory=dict)
    house: str = SHARED
    planted: dict[str, TransactionLogValue] = field(default_factory=dict)
    recording: str = ""
    attempts: int = 1

    @property
    def live(self) -> bool:
        """Whether it is told to a live Kafka each time, and not only when it is recorded."""
        return int(self.arguments.get("seed", 0)) < LIVE_SEEDS

    @property
    def module(self) -> str:
        return self.id.partition(".")[0]

    @property
    def prefix(self) -> str:
        """What is put before the story's names, so that all stories can share one broker."""
        return re.sub(r"[^a-zA-Z0-9]+", "-", self.id) + "-"

    @property
    def prefixes(self) -> list[str]:
        """Those of all attempts: what an attempt leaves behind must not disturb the next."""
        return [self.prefix, *(f"{self.prefix}again-{n}-" for n in range(1, self.attempts))]

    def run(self, broker: Broker) -> list[str]:
        """Tell the story to a broker and return the transcript, with the logs in the end. Raises
        TooSlow."""
        for name in self.planted:
            broker.states.watch_from_planted(broker.names.on_wire(name))
        hurry = self.tell(broker, **self.arguments)
        broker.write_down_the_end()
        if hurry is not None:
            hurry.over()
        return broker.transcript


def variants(**values: Iterable[Any]) -> Callable[[Tell], Tell]:
    """Tell the story once for every combination of these arguments."""

    def mark(tell: Tell) -> Tell:
        setattr(tell, _VARIANTS, {name: tuple(several) for name, several in values.items()})
        return tell

    return mark


def planted(**records: TransactionLogValue) -> Callable[[Tell], Tell]:
    """Before the brokers start, put these records of `__transaction_state` there, by the story's
    name for the transactional id: states that would take 32,766 transactions to reach."""

    def mark(tell: Tell) -> Tell:
        setattr(tell, _PLANTED, records)
        return tell

    return mark


def kept_in(recording: str) -> Callable[[Tell], Tell]:
    """Record the story in this file instead of its module's: long ones are compressed."""

    def mark(tell: Tell) -> Tell:
        setattr(tell, _RECORDING, recording)
        return tell

    return mark


def against_the_clock(tell: Tell) -> Tell:
    """Tell the story again if it was told too slowly."""
    setattr(tell, _ATTEMPTS, ATTEMPTS)
    return tell


def in_house(house: str | Callable[..., str]) -> Callable[[Tell], Tell]:
    """Tell the story to the brokers of this house, or of the one that the arguments say."""

    def mark(tell: Tell) -> Tell:
        setattr(tell, _HOUSE, house)
        return tell

    return mark


def in_brief_house(tell: Tell) -> Tell:
    """Tell the story to brokers that forget transactional ids and producer ids in a moment."""
    return in_house(BRIEF)(tell)


def stories_of(module: ModuleType) -> list[Story]:
    """Every story that a module tells, in its order."""
    found = []
    name_of_module = module.__name__.rpartition(".")[2]
    for name, tell in inspect.getmembers(module, inspect.isfunction):
        if not name.startswith(PREFIX) or tell.__module__ != module.__name__:
            continue
        base = f"{name_of_module}.{name.removeprefix(PREFIX)}"
        several: dict[str, tuple[Any, ...]] = getattr(tell, _VARIANTS, {})
        for values in itertools.product(*several.values()):
            arguments = dict(zip(several, values, strict=True))
            variant = ",".join(f"{key}={_short(value)}" for key, value in arguments.items())
            house = getattr(tell, _HOUSE, SHARED)
            found.append(
                Story(
                    f"{base}[{variant}]" if variant else base,
                    tell,
                    arguments,
                    house(**arguments) if callable(house) else house,
                    getattr(tell, _PLANTED, {}),
                    getattr(tell, _RECORDING, ""),
                    getattr(tell, _ATTEMPTS, 1),
                )
            )
    return found


def _short(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
