"""One connection to one broker: requests go out in order, answers come back in order.

Many requests are under way at once. A request is sent by the task that posts it, as far as the
network takes it at once. The rest is left to a writing task, so a cancelled caller never leaves
half a frame on the wire. A reading task hands each answer to a plain function. The producer sends
its next request in that function, without waking another task.

A request that is not answered in time ends the connection. Answers come in the order of the
requests, so the answers behind a missing one cannot be read.
"""

import math
import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

import trio

from odradek import __version__
from odradek.client.cluster.nursery import ClientNursery
from odradek.client.cluster.strangers import SNIFFED_BYTES, stranger
from odradek.client.errors import (
    Closed,
    Disconnected,
    OdradekError,
    Refused,
    Retriable,
    TimedOut,
)
from odradek.client.network import CertificateRefused, Stream
from odradek.client.types import GroupBounds
from odradek.protocol.api import Api
from odradek.protocol.apis.versions import (
    API_VERSIONS,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from odradek.protocol.connection import ClientProtocol, FrameReader
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.schema import Buffer

Request = TypeVar("Request")
Response = TypeVar("Response")

FRAME_MAX_BYTES: Final = 256 * 1024 * 1024
"""The largest answer that is accepted. Memory for it is allocated as it arrives."""
SOFTWARE_NAME: Final = "odradek"
API_VERSIONS_ASKED: Final = 3
"""The ApiVersions version that is sent: every broker since 2019 has it, and it returns features."""
TRANSACTION_FEATURE: Final = "transaction.version"
GROUPS_FEATURE: Final = "transaction.groups"
"""Odradek's: one decision for the transactions of many producers."""

Answered = Callable[[Any, OdradekError | None], None]
"""A function that is called once, with the answer and None, or with None and the error."""


NEVER: Final = float("inf")
SILENT_S: Final = 1.0
"""After so long without an answer, other brokers are asked whether this one is still there."""


class _Pending(NamedTuple):
    answered: Answered
    since: float
    deadline: float
    name: str


class _Held:
    """Requests that wait while the connection authenticates anew, and are sent after that."""

    def __init__(self) -> None:
        self.parts: list[Buffer] = []
        self.unanswered: list[Answered] = []


class ApiRange(NamedTuple):
    min_version: int
    max_version: int


class BrokerConnection:
    """A connection that requests may be posted on until it is closed."""

    def __init__(self, stream: Stream, *, client_id: str, request_timeout_ms: int) -> None:
        self.peer = stream.peer
        self.versions: dict[int, ApiRange] = {}
        self.features: dict[str, int] = {}
        self.group_bounds: GroupBounds | None = None
        self._stream = stream
        self._protocol = ClientProtocol(client_id)
        self._reader = FrameReader(FRAME_MAX_BYTES)
        self._timeout = request_timeout_ms / 1000
        self._pending: dict[int, _Pending] = {}
        self._outgoing: list[Buffer] = []
        self._unanswered: list[Answered] = []
        self._held: _Held | None = None
        self._first_id = 0
        """The correlation id of the first request after ApiVersions."""
        self.was_turned_away = False
        """The broker has closed the connection instead of answering the first request."""
        self._wake = trio.Event()
        self._scope = trio.CancelScope()
        self._nursery: ClientNursery | None = None
        self._patience = trio.CancelScope()
        self._has_received = False
        self._why: OdradekError | None = None
        self.lost_answers = 0
        """The requests under way when the connection was lost. 0 if this side has closed it."""

    @property
    def is_closed(self) -> bool:
        return self._why is not None

    @property
    def why_closed(self) -> OdradekError | None:
        return self._why

    @property
    def in_flight(self) -> int:
        """The number of requests that wait for their answer, or, without answer, to be sent."""
        held = 0 if self._held is None else len(self._held.unanswered)
        return len(self._pending) + len(self._unanswered) + held

    @property
    def is_silent(self) -> bool:
        """Return True if a request has waited for its answer longer than most answers take."""
        oldest = self._oldest
        return oldest is not None and trio.current_time() - oldest.since > SILENT_S

    @property
    def _oldest(self) -> _Pending | None:
        """The request that is answered next."""
        return next(iter(self._pending.values()), None)

    def close(self, why: OdradekError | None = None, *, is_loss: bool = True) -> None:
        """Close the connection now. Every request under way gets the error `why`.

        It is no loss if the client itself does not need the answers any more.
        """
        if self._why is None:
            self._why = why or Closed(f"the connection to {self.peer} was closed")
            self._scope.cancel()
            if is_loss and isinstance(self._why, Retriable):
                self.lost_answers = self.in_flight
            # Taken out first: `answered` may post again, or close once more.
            pending, self._pending = self._pending, {}
            self._outgoing.clear()
            unanswered, self._unanswered = self._unanswered, []
            held, self._held = self._held, None
            if held is not None:
                unanswered += held.unanswered
            for answered in (*(request.answered for request in pending.values()), *unanswered):
                answered(None, self._why)

    def version_of(self, api: Api[Any, Any], at_most: int | None = None) -> int:
        """Return the newest version of `api` that both sides have, not above `at_most`.

        Raises `Refused` without such a version.
        """
        served = self.versions.get(api.key)
        newest = api.max_version if at_most is None else min(api.max_version, at_most)
        if served is not None:
            version = min(newest, served.max_version)
            if version >= max(api.min_version, served.min_version):
                return version
        offered = f"{served.min_version}-{served.max_version}" if served else "none"
        raise Refused(
            f"the broker {self.peer} serves {api.name} in versions {offered}, and this client "
            f"needs one of {api.min_version}-{newest}; use a newer broker",
            code=ErrorCode.UNSUPPORTED_VERSION,
        )

    def post(
        self,
        api: Api[Request, Response],
        version: int,
        request: Request,
        answered: Answered,
        *,
        timeout_ms: int | None = None,
        is_answered: bool = True,
        is_held: bool = True,
    ) -> None:
        """Send a request. `answered` is called with its answer, or with the error.

        While requests are held (`hold`), only one that is not `is_held` is sent at once.
        `answered` is called later, in a task of the connection. For a request without answer
        (acks=0), it is called with None when the request was handed to the network. The buffers of
        `request` must not change before the call.

        Raises `Disconnected` if the connection is closed, `Refused` if a number or a text is too
        large for its field. Then `answered` is not called.
        """
        if self._why is not None:
            raise Disconnected(f"the connection to {self.peer} is closed: {self._why}")
        rest: Sequence[Buffer]
        try:
            correlation_id, rest = self._protocol.request(
                api, version, request, is_answered=is_answered
            )
        except struct.error as error:
            raise Refused(f"a value in the request {api.name} is out of range: {error}") from error
        if is_answered:
            timeout = self._timeout if timeout_ms is None else timeout_ms / 1000
            now = trio.current_time()
            deadline = now + timeout
            # One time limit for the connection, that of the oldest request: answers come in order,
            # so none of the others can come before it.
            if not self._pending:
                self._lower_patience(deadline)
            self._pending[correlation_id] = _Pending(answered, now, deadline, api.name)
            if self._held is not None and is_held:
                self._held.parts += rest
                return
            if not self._wake.is_set():  # nothing waits to be sent
                rest = self._send_now(rest)
        elif self._held is not None:
            self._held.parts += rest
            self._held.unanswered.append(answered)
            return
        else:
            self._unanswered.append(answered)
        if rest:
            self._outgoing += rest
            self._wake.set()

    def _send_now(self, parts: Sequence[Buffer]) -> Sequence[Buffer]:
        """Send what the network takes at once. Return the rest, or all if the connection is lost.

        The writing task then sees that it is lost.
        """
        try:
            return self._stream.send_now(parts)
        except trio.BrokenResourceError:
            return parts

    def _lower_patience(self, deadline: float) -> None:
        """Wake the reading task at `deadline`, unless it wakes earlier.

        A time that is not needed any more stays set. Setting it at each request costs more than
        waking once too often in `request_timeout_ms`.
        """
        if deadline < self._patience.deadline:
            self._patience.deadline = deadline

    async def request(
        self,
        api: Api[Request, Response],
        version: int,
        request: Request,
        *,
        timeout_ms: int | None = None,
        is_held: bool = True,
    ) -> Response:
        """Send a request, and return its answer.

        Raises `TimedOut`, and `Disconnected` and `Refused` as `post` does. If the caller is
        cancelled, the answer is dropped, and the connection stays usable.
        """
        done = trio.Event()
        outcome: list[tuple[Any, OdradekError | None]] = []

        def answered(response: Any, error: OdradekError | None) -> None:
            outcome.append((response, error))
            done.set()

        self.post(api, version, request, answered, timeout_ms=timeout_ms, is_held=is_held)
        await done.wait()
        response, error = outcome[0]
        if error is not None:
            raise error.copy()
        result: Response = response
        return result

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep what is posted in this block until its end, and then send it.

        A broker takes no other request while a connection authenticates anew (KIP-368).
        """
        assert self._held is None, "the connection authenticates anew already"
        self._held = _Held()
        try:
            yield
        finally:
            held, self._held = self._held, None
            if held is not None and self._why is None:
                self._outgoing += held.parts
                self._unanswered += held.unanswered
                self._wake.set()

    @property
    def longest_wait_ms(self) -> int:
        """The time until the last of the requests under way must have been answered."""
        last = max((request.deadline for request in self._pending.values()), default=0.0)
        return max(0, math.ceil((last - trio.current_time()) * 1000))

    def in_background(self, task: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run a task until the connection is closed."""
        if self._nursery is not None and self._why is None:
            self._nursery.start_soon(task, *args)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve the connection until it is closed or lost. Raises only trio.Cancelled."""
        try:
            with self._scope:
                async with ClientNursery() as nursery:
                    self._nursery = nursery
                    nursery.start_soon(self._write)
                    nursery.start_soon(self._read)
                    task_status.started()
        finally:
            self.close(Closed(f"the connection to {self.peer} was closed"))
            with trio.CancelScope(shield=True):
                await self._stream.aclose()

    async def ask_versions(self) -> None:
        """Ask which API versions the broker serves. It is the first request of a connection."""
        # A broker that does not know the version says so in the form of version 0 (KIP-511), and
        # must be asked again.
        for version in (API_VERSIONS_ASKED, 0):
            request = ApiVersionsRequest(
                client_software_name=SOFTWARE_NAME, client_software_version=__version__
            )
            answer: ApiVersionsResponse = await self.request(API_VERSIONS, version, request)
            self._first_id += 1
            if answer.error_code == ErrorCode.NONE:
                break
        else:
            raise Refused(f"the broker {self.peer} does not say which versions it serves.")
        self.versions = {
            supported.api_key: ApiRange(supported.min_version, supported.max_version)
            for supported in answer.api_keys
        }
        self.features = {
            feature.name: feature.max_version_level for feature in answer.finalized_features
        }
        if answer.group_members_max > 0:
            self.group_bounds = GroupBounds(
                answer.group_members_max,
                answer.group_partitions_max,
                answer.group_decision_max_bytes,
            )

    async def _write(self) -> None:
        try:
            while True:
                if not self._outgoing:
                    self._wake = trio.Event()
                    await self._wake.wait()
                parts, self._outgoing = self._outgoing, []
                # Only those are sent whose bytes are in `parts`. More may be posted meanwhile.
                count = len(self._unanswered)
                await self._stream.send_all(parts)
                sent, self._unanswered = self._unanswered[:count], self._unanswered[count:]
                for answered in sent:
                    answered(None, None)
        except trio.BrokenResourceError as error:
            self._lose(error)

    async def _read(self) -> None:
        try:
            while True:
                with self._patience:
                    await self._receive()
                    return
                oldest = self._oldest
                if oldest is not None and oldest.deadline <= trio.current_time():
                    self.close(self._not_answered(oldest))
                    return
                self._patience = trio.CancelScope(deadline=oldest.deadline if oldest else NEVER)
        except (trio.BrokenResourceError, ProtocolError) as error:
            self._lose(error)

    async def _receive(self) -> None:
        """Take answers until the connection is closed."""
        reader, stream = self._reader, self._stream
        while self._why is None:  # `answered` of an answer may close the connection
            buffer = reader.buffer()
            count = await stream.receive_into(buffer)
            if count == 0:
                self.close(self._closed_by_peer())
                return
            if not self._has_received:
                self._has_received = True
                self._look_at(bytes(buffer[: min(count, SNIFFED_BYTES)]))
            reader.note_received(count)
            while self._why is None and (frame := reader.next_frame()) is not None:
                self._take(frame)

    def _look_at(self, first: bytes) -> None:
        """Close the connection if the other side is no broker."""
        found = stranger(first)
        if found is not None:
            self.close(Refused(f"{self.peer} is not a Kafka broker, but {found}"))

    def _not_answered(self, late: _Pending) -> OdradekError:
        return TimedOut(
            f"the broker {self.peer} did not answer {late.name} in time; see whether it is alive, "
            f"or raise request_timeout_ms",
            code=ErrorCode.REQUEST_TIMED_OUT,
        )

    def _closed_by_peer(self) -> OdradekError:
        self._note_end()
        if self.was_turned_away:
            return Disconnected(
                f"the broker {self.peer} closed the connection at its first request; see whether "
                "its listener has SASL (security.protocol=SASL_SSL)"
            )
        if self.versions:
            return Disconnected(f"the broker {self.peer} closed the connection")
        return Disconnected(
            f"{self.peer} has taken the connection and closed it without an answer; see whether it "
            f"is a Kafka broker, and whether its listener has TLS (security.protocol=SSL)"
        )

    def _note_end(self) -> None:
        """Note that the broker has closed the connection."""
        oldest = next(iter(self._pending), None)
        self.was_turned_away = bool(self.versions) and oldest == self._first_id

    def _take(self, frame: memoryview) -> None:
        correlation_id, response = self._protocol.response(frame)
        pending = self._pending.pop(correlation_id)
        oldest = self._oldest
        if oldest is not None:
            self._lower_patience(oldest.deadline)
        pending.answered(response, None)

    def _lose(self, error: Exception) -> None:
        said = str(error) or type(error).__name__
        if isinstance(error, CertificateRefused):
            self.close(Refused(said))
            return
        self._note_end()
        self.close(Disconnected(f"the connection to the broker {self.peer} was lost: {said}"))
