"""Stories: functions that send requests to a broker, in one or several variants.

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
"""The number of seeds of a random story that run on a live Kafka each time."""
_VARIANTS: Final = "judge_variants"
_PLANTED: Final = "judge_planted"
_SETUP: Final = "judge_house"
_RECORDING: Final = "judge_recording"
_ATTEMPTS: Final = "judge_attempts"
_RECORDED_ONLY: Final = "judge_recorded_only"
SHARED: Final = "shared"
BRIEF: Final = "brief"
GIVING_UP: Final = "giving up"
GROUPS: Final = "groups"
SECURED: Final = "secured"
"""With an authoriser; stories are told by a super user."""
SASL: Final = "sasl"
"""With listeners for users whose passwords are in the settings."""
SCRAM: Final = "scram"
"""With listeners for users that an administrator has made."""
POLICIES: Final = ("bidirectional", "upgrade", "downgrade", "disabled")
"""The values of `group.consumer.migration.policy`, Kafka's default first."""

StoryFunction = Callable[..., Hurry | None]
"""If it returns a `Hurry`, its time must not be over before the logs at the end have been read."""


@dataclass(frozen=True, slots=True)
class Story:
    """One variant of one function.

    `setup`: the settings of its brokers (`setups.py`). `recording`: the file with Kafka's answers,
    if it is not the module's. `attempts`: the number of runs until it is quick enough (`hurry.py`).
    """

    id: str
    function: StoryFunction
    arguments: dict[str, Any] = field(default_factory=dict)
    setup: str = SHARED
    planted: dict[str, TransactionLogValue] = field(default_factory=dict)
    recording: str = ""
    attempts: int = 1
    is_recorded_only: bool = False

    @property
    def live(self) -> bool:
        """Return True if it runs on a live Kafka each time, and not only when it is recorded."""
        return not self.is_recorded_only and int(self.arguments.get("seed", 0)) < LIVE_SEEDS

    @property
    def module(self) -> str:
        return self.id.partition(".")[0]

    @property
    def prefix(self) -> str:
        """The prefix of the story's names, so that all stories can share one broker."""
        return re.sub(r"[^a-zA-Z0-9]+", "-", self.id) + "-"

    @property
    def prefixes(self) -> list[str]:
        """The prefixes of all attempts: what an attempt leaves must not disturb the next."""
        return [self.prefix, *(f"{self.prefix}again-{n}-" for n in range(1, self.attempts))]

    def run(self, broker: Broker) -> list[str]:
        """Run the story. Return the transcript, with the logs at the end. Raises TooSlow."""
        for name in self.planted:
            broker.states.watch_from_planted(broker.names.on_wire(name))
        broker.names.shows_all = self.setup.startswith(GROUPS)
        hurry = self.function(broker, **self.arguments)
        broker.write_down_the_end()
        if hurry is not None:
            hurry.over()
        return broker.transcript


def variants(**values: Iterable[Any]) -> Callable[[StoryFunction], StoryFunction]:
    """Run the story once for every combination of these arguments."""

    def mark(function: StoryFunction) -> StoryFunction:
        setattr(function, _VARIANTS, {name: tuple(several) for name, several in values.items()})
        return function

    return mark


def planted(**records: TransactionLogValue) -> Callable[[StoryFunction], StoryFunction]:
    """Write these records of `__transaction_state` before the brokers start.

    They are given by the story's name of the transactional id, and lead to states that would take
    32,766 transactions to reach.
    """

    def mark(function: StoryFunction) -> StoryFunction:
        setattr(function, _PLANTED, records)
        return function

    return mark


def kept_in(recording: str) -> Callable[[StoryFunction], StoryFunction]:
    """Record the story in this file instead of its module's: long ones are compressed."""

    def mark(function: StoryFunction) -> StoryFunction:
        setattr(function, _RECORDING, recording)
        return function

    return mark


def against_the_clock(function: StoryFunction) -> StoryFunction:
    """Run the story again if it was too slow."""
    setattr(function, _ATTEMPTS, ATTEMPTS)
    return function


def recorded_only(function: StoryFunction) -> StoryFunction:
    """Do not run the story on a live Kafka in the tests: there are many of its kind."""
    setattr(function, _RECORDED_ONLY, True)
    return function


def in_setup(setup: str | Callable[..., str]) -> Callable[[StoryFunction], StoryFunction]:
    """Run the story on the brokers of this setup, or of the one for its arguments."""

    def mark(function: StoryFunction) -> StoryFunction:
        setattr(function, _SETUP, setup)
        return function

    return mark


def with_policy(policy: str = POLICIES[0]) -> str:
    """Return the setup of groups with this `group.consumer.migration.policy`."""
    return GROUPS if policy == POLICIES[0] else f"{GROUPS}, {policy}"


def in_brief_setup(function: StoryFunction) -> StoryFunction:
    """Run the story on brokers where transactional ids and producer ids expire soon."""
    return in_setup(BRIEF)(function)


def stories_of(module: ModuleType) -> list[Story]:
    """Return the stories of a module, in their order."""
    found = []
    name_of_module = module.__name__.rpartition(".")[2]
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if not name.startswith(PREFIX) or function.__module__ != module.__name__:
            continue
        base = f"{name_of_module}.{name.removeprefix(PREFIX)}"
        several: dict[str, tuple[Any, ...]] = getattr(function, _VARIANTS, {})
        for values in itertools.product(*several.values()):
            arguments = dict(zip(several, values, strict=True))
            variant = ",".join(f"{key}={_short(value)}" for key, value in arguments.items())
            setup = getattr(function, _SETUP, SHARED)
            found.append(
                Story(
                    f"{base}[{variant}]" if variant else base,
                    function,
                    arguments,
                    setup(**arguments) if callable(setup) else setup,
                    getattr(function, _PLANTED, {}),
                    getattr(function, _RECORDING, ""),
                    getattr(function, _ATTEMPTS, 1),
                    getattr(function, _RECORDED_ONLY, False),
                )
            )
    return found


def _short(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
