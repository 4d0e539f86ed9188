"""Sending requests and recording the answers: the common base of all steps of a story.

A request whose answer is one of `NOT_YET` is retried, on both brokers, until there is another
answer or the patience is over. The last answer is recorded.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from odradek.protocol.api import Api
from odradek.protocol.apis.topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.protocol.errors import ErrorCode
from tests.judge.doors import Doors
from tests.judge.line import PATIENCE_SECONDS, Line, Silence
from tests.judge.names import Names, code_name
from tests.judge.reading import BY_NAME, OffsetsLog, StateLog, fetch, list_offset

NOT_YET: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,  # what Produce calls the first one before version 12
    }
)
BETWEEN_ATTEMPTS_SECONDS: Final = 0.001
Said = TypeVar("Said")


def asked_until(
    ask: Callable[[], Said],
    is_right: Callable[[Said], bool],
    *,
    pause_seconds: float = BETWEEN_ATTEMPTS_SECONDS,
) -> Said:
    """Ask until the answer is right, record nothing and return it. Raises AssertionError if it
    takes long."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not is_right(said := ask()):
        assert time.monotonic() < give_up, said
        time.sleep(pause_seconds)  # between two questions, not for luck
    return said


@dataclass(frozen=True, slots=True)
class Identity:
    """A producer id and an epoch."""

    producer_id: int
    epoch: int

    def older(self, by: int = 1) -> "Identity":
        return Identity(self.producer_id, self.epoch - by)

    def newer(self, by: int = 1) -> "Identity":
        return Identity(self.producer_id, self.epoch + by)


class Asker:
    """One broker in one story. `transcript` has the lines that are recorded so far."""

    def __init__(self, host: str, port: int, prefix: str = "") -> None:
        self.line = Line(host, port)
        self._address = (host, port)
        self.names = Names(prefix)
        self.states = StateLog(self.line)
        self.offsets = OffsetsLog(self.line)
        self.transcript: list[str] = []
        self.patience_seconds = PATIENCE_SECONDS
        self.topics_made: dict[str, int] = {}
        self.doors: Doors | None = None
        """Where a secured broker lets in others than super users."""

    def close(self) -> None:
        self.line.close()

    @property
    def host(self) -> str:
        return self._address[0]

    @property
    def port(self) -> int:
        return self._address[1]

    # Any request at all

    def say(self, what: str) -> None:
        """Record a line."""
        self.transcript.append(what)

    def ask(
        self,
        what: str,
        api: Api[Any, Any],
        version: int,
        message: object,
        answer: Callable[[Any], str] | None = None,
        codes: Callable[[Any], Sequence[int]] = lambda response: (),
        client_id: str | None = None,
        by: Line | None = None,
    ) -> Any:
        """Send a request of any kind and record "what -> answer". Return the response.

        `answer` formats the response (by default every field except times and messages). `codes`
        returns its error codes, which may be in `NOT_YET`. `by` is a connection of somebody else.
        Return None if there was no answer; the line then has whether the connection was closed.
        """
        own = self.line if by is None else by
        line = own if client_id is None else Line(*self._address, client_id)
        try:
            response = self._final(line, api, version, message, codes)
        except Silence as silence:
            self.say(f"{what} -> {silence}")
            return None
        finally:
            if line is not own:
                line.close()
        self.say(f"{what} -> {(answer or self.names.describe)(response)}")
        return response

    def _final(
        self,
        line: Line,
        api: Api[Any, Any],
        version: int,
        message: object,
        codes: Callable[[Any], Sequence[int]],
    ) -> Any:
        give_up = time.monotonic() + self.patience_seconds
        while True:
            response = line.ask(api, version, message)
            if not NOT_YET.intersection(codes(response)) or time.monotonic() > give_up:
                return response
            time.sleep(BETWEEN_ATTEMPTS_SECONDS)  # between two questions, not for luck

    # Preparations

    def topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic of the story, whose logs are recorded at the end."""
        topic = CreatableTopic(
            name=self.names.on_wire(name),
            num_partitions=partitions,
            replication_factor=1,
            assignments=(),
            configs=tuple(
                CreatableTopicConfig(name=key, value=value)
                for key, value in (configs or {}).items()
            ),
        )
        result = self.line.ask(CREATE_TOPICS, 7, CreateTopicsRequest(topics=(topic,))).topics[0]
        assert result.error_code == ErrorCode.NONE, (name, code_name(result.error_code))
        self.names.topic_ids[name] = result.topic_id
        self.topics_made[name] = partitions
        for partition in range(partitions):
            self.wait_until_led(name, partition)
        return name

    def wait_until_led(self, name: str, partition: int) -> None:
        """Wait until a created topic can be read: a real Kafka answers CreateTopics earlier."""
        self._wait_until_read(name, partition, ErrorCode.NONE)

    def wait_until_gone(self, name: str, partition: int) -> None:
        """Wait until a deleted topic cannot be read any more, for the same reason."""
        self._wait_until_read(name, partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _wait_until_read(self, name: str, partition: int, answer: ErrorCode) -> None:
        wire = self.names.on_wire(name)

        def ask() -> tuple[str, str]:
            read = fetch(self.line, wire, partition, 0, version=BY_NAME).error_code
            code, _ = list_offset(self.line, wire, partition, -1)
            return code_name(read), code_name(code)

        asked_until(ask, lambda codes: set(codes) == {code_name(answer)})

    # Words

    def wire_id(self, name: str | None) -> str | None:
        """Return a transactional id as it is sent, and watch the coordinator's records of it."""
        if name is None:
            return None
        wire = self.names.on_wire(name)
        if wire:
            self.states.watch(wire)
        return wire

    def must_id(self, name: str) -> str:
        wire = self.wire_id(name)
        assert wire is not None
        return wire

    def wire_group(self, group: str) -> str:
        """Return a group id as it is sent, and watch the records of its offsets."""
        wire = self.names.on_wire(group)
        self.offsets.watch(wire)
        return wire

    def quote(self, name: str | None) -> str:
        if name is None:
            return "null"
        return name if 0 < len(name) <= 40 else f"'{name[:20]}' ({len(name)})"

    def identity_of(self, producer: Identity) -> str:
        return self.names.identity(producer.producer_id, producer.epoch)

    def with_identity(self, response: Any, epoch: int) -> str:
        name = code_name(response.error_code)
        if (response.producer_id, epoch) == (-1, -1):
            return name
        return f"{name} {self.names.identity(response.producer_id, epoch)}"

    def codes(self, results: Any) -> list[str]:
        """Return one NONE if all codes are NONE, else each code with its partition, in order."""
        found = sorted((self.names.here(topic), index, code) for topic, index, code in results)
        if found and all(code == 0 for _, _, code in found):
            return ["NONE"]
        return [f"{topic}-{index} {code_name(code)}" for topic, index, code in found]
