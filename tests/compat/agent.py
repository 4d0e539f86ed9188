"""What the agents in Python have in common; what an agent is, says `agents.py`."""

import faulthandler
import os
import signal
from collections.abc import Iterable
from typing import ClassVar, Final

EVERY_THIRD: Final = 3
"""Of the transactions of a relay this one is aborted on purpose, and done again."""
NO_INSTANCE: Final = "-"
SHORT_SESSION_MS: Final = 6_000
"""The session time-out of a relay without an instance: the shortest that a broker allows."""
LONGEST_POLL_MS: Final = 20_000
"""The `max.poll.interval.ms` of a relay without an instance. A coordinator waits so long for a
member that sends heartbeats and does not join again, because it hangs (the default: 5 minutes)."""

SHOW_STACKS: Final = signal.SIGUSR1
"""Has an agent write to its standard error what each of its threads does."""


GIVEN: Final = "AGENT_SETTINGS"
"""The environment variable with more settings of the library: NAME=VALUE, one a line."""


def given_settings() -> dict[str, str]:
    """Return the settings that the test gives to every client of the process."""
    lines = os.environ.get(GIVEN, "").splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


class Agent:
    """Calls `do_<command>` with the words of each line, and says what became of it."""

    refusal: ClassVar[type[Exception]]
    """What the client library raises."""

    def run(self, lines: Iterable[str]) -> None:
        faulthandler.register(SHOW_STACKS)
        for line in lines:
            command, *words = line.split()
            try:
                answer = self.perform(command, words)
            except self.refusal as refused:
                say("error", self.kind_of(refused), " ".join(str(refused).split()))
            else:
                say("ok", *([] if answer is None else [answer]))

    def perform(self, command: str, words: list[str]) -> object:
        """The answer to a command, or None."""
        return getattr(self, f"do_{command}")(*words)

    def kind_of(self, refused: Exception) -> str:
        """The library's name of an error."""
        return type(refused).__name__


def say(*words: object) -> None:
    print(*words, flush=True)
