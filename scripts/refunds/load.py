"""Fill the topic `departures` with the flights in order: at once, or as far as the demo allows."""

import json
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self

from odradek.client import OdradekError
from odradek.client.blocking import Producer
from scripts.refunds.flights import flights, key_of
from scripts.refunds.processor import TOPIC_IN

NO_OPTIONS: Final[Mapping[str, Any]] = MappingProxyType({})


def load(bootstrap: str, limit: int | None, progress: Callable[[int], None]) -> int:
    """Write every flight and return their number. Raises if one was not stored."""
    count = 0
    with _producer(bootstrap) as producer:
        for count, flight in enumerate(flights(limit), start=1):
            _send(producer, flight)
            if count % 1_000 == 0:
                progress(count)
        producer.flush()
    progress(count)
    return count


def _producer(bootstrap: str, options: Mapping[str, Any] = NO_OPTIONS) -> Producer:
    return Producer(bootstrap, linger_ms=20, compression="lz4", **options)


def _send(producer: Producer, flight: dict[str, Any]) -> None:
    producer.send(TOPIC_IN, json.dumps(flight).encode(), key=key_of(flight))


class _Ended(Exception):
    """Ends the thread before its time, without waiting for what is not stored yet."""


class Feeder:
    """A thread that writes the flights, from entry to exit, and never more than it may."""

    def __init__(
        self, bootstrap: str, limit: int | None, options: Mapping[str, Any] = NO_OPTIONS
    ) -> None:
        self._bootstrap = bootstrap
        self._options = options
        self._limit = limit
        self._allowed = 0
        self._may_go_on = threading.Condition()
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name="feeder")
        self.is_done = False
        """All flights are stored."""
        self.error: OdradekError | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._may_go_on:
            self._is_ending = True
            self._may_go_on.notify()
        self._thread.join()

    def allow(self, count: int) -> None:
        """Let it write up to this number of flights in all."""
        if self.error is not None:
            raise self.error
        with self._may_go_on:
            self._allowed = max(self._allowed, count)
            self._may_go_on.notify()

    def _run(self) -> None:
        try:
            with _producer(self._bootstrap, self._options) as producer:
                for count, flight in enumerate(flights(self._limit)):
                    self._wait_until_allowed(count + 1)
                    _send(producer, flight)
                producer.flush()
            self.is_done = True
        except _Ended:
            pass
        except OdradekError as error:
            self.error = error

    def _wait_until_allowed(self, count: int) -> None:
        with self._may_go_on:
            self._may_go_on.wait_for(lambda: self._is_ending or count <= self._allowed)
            if self._is_ending:
                raise _Ended
