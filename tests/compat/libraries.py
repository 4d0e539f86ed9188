"""The client libraries whose agents can be given a user, and how a test runs one of them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.compat.agent import GIVEN
from tests.compat.agents import Agent, Client, python_command

FIXTURES: Final[Mapping[str, str | None]] = {
    "confluent": None,
    "kafka_python": None,
    "aiokafka": None,
    "java": "java_agent",
    "franz-go": "go_agent",
    "sarama": "sarama_agent",
    "kafkajs": "kafkajs_agent",
}
"""The libraries, each with the fixture that builds its agent; None: a module in Python."""
IN_PYTHON: Final = ("kafka_python", "aiokafka")
LIBRARIES: Final = [
    name if name == "confluent" else pytest.param(name, marks=pytest.mark.peers)
    for name in FIXTURES
]
"""The parameters of a fixture that is each library in turn."""


@dataclass(frozen=True, slots=True)
class Library:
    """A client library."""

    client: Client

    @classmethod
    def of(cls, request: pytest.FixtureRequest) -> "Library":
        """Return the library that is the parameter of a fixture."""
        name: str = request.param
        fixture = FIXTURES[name]
        command: list[str] = (
            python_command(name) if fixture is None else request.getfixturevalue(fixture)
        )
        return cls(Client(name, command, 2))

    @property
    def name(self) -> str:
        return self.client.name

    def chosen(self, *, java: Any, python: Any, librdkafka: Any) -> Any:
        """Return the one whose names of settings this library has.

        The agents in Go and JavaScript have those of librdkafka.
        """
        if self.name == "java":
            return java
        return python if self.name in IN_PYTHON else librdkafka

    @contextmanager
    def running(self, settings: Mapping[str, str]) -> Iterator[Agent]:
        """Run an agent with these settings of its library while the block runs."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(GIVEN, "\n".join(f"{name}={value}" for name, value in settings.items()))
            with self.client.running() as agent:
                yield agent
