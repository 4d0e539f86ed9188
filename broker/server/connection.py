"""One client's connection: its requests in order, its answers in the same order.

Two tasks. The reader takes a frame (`receiver.py`), parses it and calls the handler. It sends the
answer itself if that is ready and no earlier answer is pending. Otherwise the answer is pending
(`pending.py`) and the reader takes the next request: such is a `Deferred` answer, whose records are
not yet on disk. The writer (`answer_sender.py`) sends it; a small one is sent at the end of its
fsync, without the writer. At most `ANSWERS_PENDING_MAX` are pending; then the reader stops reading,
and TCP makes the client wait. So a client that sends and never reads costs a bounded amount of
memory.

Time limits are plain attributes that the server's watch reads (`look_after`), because a cancel
scope for every request costs more than parsing it:

- a frame that has begun must be complete after `frame_seconds`, even if bytes of it still arrive;
- the connection ends if the client sends no request and reads no answer for `idle_seconds`;
- while others wait for memory, a client may not hold a part of the pool for long (`memory.py`).

Work for a client that has gone stops. While a request is under way nothing is read, so the server's
watch looks at the connection itself (`look_after`). After a reset no answer can arrive: the work is
cancelled. What must not be left half done (an append and what follows from it, a decision, a change
of the cluster) is shielded where it is done, not here. After the end of the stream the client may
still read: a long poll is answered with the records that there are, and any other request has
`ANSWER_AFTER_END_SECONDS`.

A connection ends at the end of the stream (answers under way are still sent), after bytes that are
not the protocol (one log line says why), at a limit, and after a bug of the broker (logged with its
traceback; other connections go on). An assertion that fails where the broker keeps its state stops
the whole broker, because what it would answer could be wrong.
"""

import logging
import math
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import trio

from odradek.broker.api.context import Allowance, Core, Deferred, Handler, RequestContext
from odradek.broker.api.late_table import Apis
from odradek.broker.environment.env import Buffer, Connection, Offload, OtherEnd, inline
from odradek.broker.quotas.throttle import Throttle
from odradek.broker.security.access import Access
from odradek.broker.security.principal import Principal
from odradek.broker.server.answer_sender import AnswerSender
from odradek.broker.server.connection_limits import Limits
from odradek.broker.server.failures import (
    OurBug,
    blame,
    blame_for,
    breaks_invariant,
    first,
    let_go,
    raised_at,
)
from odradek.broker.server.known_client import UNKNOWN, KnownClient
from odradek.broker.server.lane import Lane
from odradek.broker.server.memory import Memory, Share
from odradek.broker.server.messages import Messages
from odradek.broker.server.pending import PendingAnswer
from odradek.broker.server.receiver import Receiver
from odradek.broker.txn.presence import Seat
from odradek.protocol.connection import LENGTH_BYTES, Request, ServerProtocol
from odradek.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from odradek.broker.server.request_counts import RequestCounts
    from odradek.broker.server.sasl_session import SaslSession

LOGGER: Final = logging.getLogger(__name__)

ANSWER_AFTER_END_SECONDS: Final = 10.0
"""The time that a request may be under way after its client has ended its stream."""
SLOW_SECONDS: Final = 2.0
"""The time that a client may hold a part of the pool that other connections wait for: an answer
that it has not read, or a request that is not complete."""
SHORT_SECONDS: Final = 3.0
"""The time that a connection that waits for memory may hold some: two might wait for each other.
It is longer than SLOW_SECONDS because the disk may be the cause."""
STEPS_BETWEEN_YIELDS: Final = 16
"""Reads and requests of one connection between two checkpoints."""


class ClientConnection(Allowance):
    """One client's connection. `run` returns when it has ended and raises nothing."""

    def __init__(
        self,
        stream: Connection,
        *,
        core: Core,
        handlers: Mapping[int, Handler],
        limits: Limits,
        memory: Memory,
        client: KnownClient = UNKNOWN,
        listener: str | None = None,
        apis: Apis,
        seat: Seat | None = None,
        offload: Offload = inline,
        serves_brokers: bool = False,
        lane: Lane | None = None,
        counts: "RequestCounts | None" = None,
    ) -> None:
        """`client` is who asks, `seat` counts its producers (`txn/presence.py`).

        `lane` takes the requests that it knows, without the reader. `counts` notes the others.
        """
        self.peer, self.software = stream.peer, client.software
        self.apis = apis
        self._stream = stream
        self._handlers = handlers
        self._limits = limits
        self._memory = memory
        self._share = Share(memory)
        self._throttle = Throttle(None if serves_brokers else core.quotas.accounts)
        self._messages = Messages(
            ServerProtocol(apis), memory, self._share, offload, self._throttle
        )
        self._seat = seat
        self._session = client.session
        self._context = RequestContext.of_connection(
            core,
            stream.peer,
            client.principal,
            listener=listener,
            is_from_broker=serves_brokers,
            is_local=stream.is_local,
            apis=apis,
            seat=seat,
            allowance=self,
            throttle=self._throttle,
        )
        self._whole, self._reading = trio.CancelScope(), trio.CancelScope()
        self._counts = counts
        share = self._share
        self._sender = AnswerSender(stream, messages=self._messages, share=share, counts=counts)
        self._pending = self._sender.pending
        self._receiver = Receiver(
            stream,
            share=self._share,
            memory=memory,
            limits=limits,
            pending=self._pending,
            lane=lane,
            asking=self,
            session=client.session,
        )
        self._reserved_bytes = 0
        self._steps = 0
        self._answered_before = 0
        self._ended_since = math.inf
        self._poll: trio.CancelScope | None = None
        self._is_in_a_hurry = False
        self._is_stopping = False
        self._was_closed_by_client = False
        self._serving_key: int | None = None

    async def run(self) -> None:
        try:
            with self._whole:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._sender.run)
                    with self._reading:
                        await self._read_requests()
                    self._pending.close()
        except* ProtocolError as group:
            error = first(group)
            self._log_closed(str(error), cause=raised_at(error))
        except* trio.BrokenResourceError as group:
            self._was_closed_by_client = not self._is_stopping
            LOGGER.debug("connection of %s was reset", self.peer)
            # The frames of the exception hold an answer of up to 100 MiB, in a reference cycle.
            let_go(group)
        except* OurBug:
            pass  # its traceback is in the log
        finally:
            self._share.release_all()
            self._messages.forget_objects()
            self._pending.discard()
            self._receiver.forget()
            self._throttle.leave()
            # Without cycles it is freed now. The collector might not look at it for hours.
            del self._context
            if self._seat is not None:
                self._seat.leave(is_gone=self._was_closed_by_client)

    @property
    def access(self) -> Access:
        return self._context.access

    @property
    def principal(self) -> Principal:
        return self._context.principal

    @property
    def held_bytes(self) -> int:
        """The bytes of requests and answers of this connection that are in memory."""
        return self._share.held_bytes

    @property
    def claimed_bytes(self) -> int:
        """The bytes of the pool that it holds, and of the objects of a request of many items."""
        return self._share.pool_bytes + self._messages.objects_bytes

    def cost(self, now: float) -> float:
        """Return the bytes that wait for the client or for memory, times the seconds since then.

        Zero if they do not wait for long.
        """
        patience = SLOW_SECONDS
        if self._sender.is_sending:
            since = self._sender.since
        elif (
            short_since := min(self._share.waiting_since, self._messages.waiting_since)
        ) < math.inf:
            since, patience = short_since, SHORT_SECONDS
        elif self.is_inside_request:
            since = self._receiver.deadline - self._limits.frame_seconds
        else:
            return 0.0
        return self.claimed_bytes * (now - since) if now - since > patience else 0.0

    def answer_poll(self) -> None:
        """End a long poll early, if its request holds a part of the pool."""
        if self._poll is not None and self.claimed_bytes:
            self._poll.cancel()

    @property
    def is_inside_request(self) -> bool:
        """Return True if the connection waits for the rest of a request, and for nothing else."""
        return (
            self._receiver.is_inside_frame
            and self._receiver.deadline < math.inf
            and not self._pending
        )

    def stop(self) -> None:
        """Take no further request. Requests under way are still answered, long polls at once."""
        self._is_stopping = True
        self._receiver.stop()
        self._hurry()
        if self._receiver.is_waiting:
            self._reading.cancel()

    def abandon(self) -> None:
        """End now, whether requests are answered or not."""
        self._whole.cancel()

    def look_after(self, now: float) -> None:
        """End after a time limit, or if the client of a long request has gone.

        The server calls it once a tick, so it costs next to nothing for an idle connection.
        """
        is_late = self._session is not None and self._session.is_late
        if (
            now > self._receiver.deadline
            or now > self._sender.since + self._limits.idle_seconds
            or is_late
        ):
            self._close_overdue()
            return
        assert self._sender.count <= self._receiver.count, (self._sender.count, self.peer)
        # No request is under way: the reader is at the socket, and sees the end of the stream
        # itself, unless a quota keeps it from reading.
        is_held = self._throttle.until > 0
        if self._receiver.count == self._sender.count and not is_held:
            self._answered_before = self._sender.count
            self._ended_since = math.inf
            return
        self._pending.take_all_as_due()
        # The other end is asked about only if no answer was sent for a tick. That costs a system
        # call, which a busy connection must not pay.
        is_the_same = self._sender.count == self._answered_before
        self._answered_before = self._sender.count
        if not is_the_same:
            self._ended_since = math.inf
            return
        other_end = self._stream.other_end
        # A client that has ended its stream sends no more, but may still read its answers.
        if other_end is OtherEnd.HAS_ENDED:
            self._hurry()
            self._ended_since = min(self._ended_since, now)
            # An answer that is being sent is read by the client, so it has not gone.
            # What it has sent before is served when the quota allows it.
            since = max(self._ended_since, self._throttle.until)
            is_late = now > since + ANSWER_AFTER_END_SECONDS
            if is_late and not self._sender.is_sending:
                other_end = OtherEnd.HAS_GONE
        if other_end is OtherEnd.HAS_GONE:
            LOGGER.debug("the client at %s has gone before it was answered", self.peer)
            self._was_closed_by_client = not self._is_stopping
            self._whole.cancel()

    def _hurry(self) -> None:
        """End the long poll under way, and those that follow, at once."""
        self._is_in_a_hurry = True
        if self._poll is not None:
            self._poll.cancel()

    def polling(self, deadline: float) -> trio.CancelScope:
        self._poll = trio.CancelScope(deadline=deadline)
        if self._is_in_a_hurry:
            self._poll.cancel()
        return self._poll

    def note_polled(self, seconds: float) -> None:
        if self._counts is not None:
            self._counts.note_polled(seconds)

    def _close_overdue(self) -> None:
        """End because of a time limit. One log line says which."""
        if self._session is not None and self._session.is_late:
            seconds = self._session.renewal_seconds
            why = f"its re-authentication took too long: more than {seconds:g} s"
        elif self._sender.is_sending:
            why = "the client does not read its answers"
        elif self._receiver.is_inside_frame:
            why = f"a request was not complete after {self._limits.frame_seconds:g} s"
        else:
            why = f"nothing was asked for {self._limits.idle_seconds:g} s"
        self._log_closed(why, cause=why)
        self._whole.cancel()

    def close_slow(self) -> None:
        """End because memory is short and this client makes no use of its part."""
        if self._sender.is_sending:
            why = "the client does not read its answers"
        elif self.is_inside_request:
            why = "its request is not complete"
        else:
            why = "its request needs more than is left"
        LOGGER.warning(
            "connection of %s closed: memory is short (queued.max.request.bytes), and %s",
            self.peer,
            why,
        )
        self._whole.cancel()

    def _log_closed(self, why: str, *, cause: str) -> None:
        """`cause` groups lines, so that many of one cause do not hide another (`log_lines.py`)."""
        fields = {"cause": cause, "peer": self.peer}
        LOGGER.info("connection of %s closed: %s", self.peer, why, extra=fields)

    async def _read_requests(self) -> None:
        while not self._is_stopping:
            if self._pending.is_full:
                await self._pending.room()
                continue
            if self._throttle.until:
                await self._wait_held()
                continue
            frame = self._receiver.next_frame()
            if frame is not None:
                # The client reads no answer, and the pool is used up. Another request would add an
                # answer to those that wait, which other connections have no room for.
                while self._pending and not self._memory.left_bytes:
                    await self._share.wait_changed()
                if self._session is not None and self._session.takes(frame):
                    await self._authenticate_again(frame, self._session)
                else:
                    await self._serve(frame)
            elif not await self._receiver.receive():
                self._was_closed_by_client = not self._is_stopping
                return
            self._steps += 1
            # A client that always has the next request ready would keep the loop to itself:
            # receiving what is there, and sending into an empty socket, do not wait.
            if self._steps % STEPS_BETWEEN_YIELDS == 0:
                await trio.lowlevel.checkpoint()

    async def _wait_held(self) -> None:
        """Wait while a quota holds the connection. Its answers are sent meanwhile."""
        self._receiver.is_waiting = True  # `stop` ends this wait, too
        since = trio.current_time()
        await self._throttle.wait()
        if self._counts is not None:
            self._counts.note_throttled(trio.current_time() - since)
        self._receiver.is_waiting = False

    async def _authenticate_again(self, frame: memoryview, session: "SaslSession") -> None:
        """Answer a request by which the client renews its session. Raises ProtocolError."""
        await self._pending.all_sent()
        try:
            reply = await session.reply(frame)
        except Exception as error:
            blame_for(self.peer, "the re-authentication of a client", error)
            raise
        size_bytes = len(frame) + LENGTH_BYTES

        async def send(parts: list[Buffer]) -> None:
            self._share.hold(sum(map(len, parts)))
            await self._sender.send(parts, size_bytes)

        if reply.refused:
            from odradek.broker.server.sasl_stage import send_refusal

            await send_refusal(reply, send, session.failure_seconds)
            raise ProtocolError(reply.refused)
        await send(reply.parts)

    async def _serve(self, frame: memoryview) -> None:
        size_bytes = len(frame) + 4
        counts = self._counts
        since = 0.0 if counts is None else trio.current_time()
        try:
            request = await self._messages.parse(frame)
        except Exception as error:
            blame_for(self.peer, "reading a request", error)
            raise
        self._serving_key = request.api.key
        try:
            handler = self._handlers.get(request.api.key)
            if handler is None:
                raise ProtocolError(
                    f"{request.api.name} is not served on the port for brokers "
                    "(inter.broker.listener.port); clients connect to another one (--listen)"
                )
            context = self.context_of(request)
            self._throttle.use_loop_time(context.principal.name, context.client_id)
            answer = await handler(context, request.body)
        except Exception as error:
            blame(self.peer, request, error)
            raise
        self._serving_key = None
        if counts is not None:
            answer = counts.note_answer(request.api.key, since, answer)
        # The writer builds answers of earlier requests meanwhile: those have no part in this.
        reserved_bytes, self._reserved_bytes = self._reserved_bytes, 0
        # Produce with acks=0 has no answer.
        if answer is None:
            self._sender.note_unanswered(size_bytes + reserved_bytes)
        # Answers leave in the order of the requests. A ready one behind others waits as its bytes,
        # whose size is known; the objects that it was made of are not kept.
        elif self._pending or isinstance(answer, Deferred):
            if self._messages.objects_bytes:
                size_bytes += await self._messages.keep_objects()
            if isinstance(answer, Deferred):
                size_bytes += reserved_bytes
            else:
                answer = await self._sender.build(request, answer, reserved_bytes)
            self._pending.add(PendingAnswer(request, answer, size_bytes))
        else:
            await self._sender.send(
                await self._sender.build(request, answer, reserved_bytes), size_bytes
            )
        self._messages.forget_objects()

    def context_of(self, request: Request) -> RequestContext:
        """Return the context of a request, which is that of the last one if nothing has changed."""
        last, client_id = self._context, request.client_id or ""
        is_known = request.unsupported_version is None
        if (last.api_version, last.client_id, last.is_version_known) != (
            request.version,
            client_id,
            is_known,
        ):
            self._context = replace(
                last, api_version=request.version, client_id=client_id, is_version_known=is_known
            )
        return self._context

    def on_bug_of_lane(self, error: Exception) -> None:
        if breaks_invariant(error):
            raise error
        LOGGER.error(
            "a bug in the broker: requests of %s failed; its connection is closed",
            self.peer,
            exc_info=error,
        )
        self._whole.cancel()

    def reading(self, max_bytes: int, least_bytes: int = 0) -> AbstractAsyncContextManager[int]:
        """See `Share.reading`."""
        return self._share.reading(max_bytes, least_bytes)

    async def reserve(self, size_bytes: int) -> None:
        """Wait for room for an answer of about that size, and hold it until the answer is built.

        Raises ProtocolError if no answer may be so large.
        """
        whole_bytes = self._reserved_bytes + size_bytes
        if whole_bytes > self._limits.answer_max_bytes:
            api = "?" if self._serving_key is None else self._context.apis[self._serving_key].name
            raise ProtocolError(
                f"an answer to {api} of about {whole_bytes} bytes is asked for, and "
                f"socket.response.max.bytes is {self._limits.answer_max_bytes}"
            )
        await self._share.room(size_bytes)
        self.keep(size_bytes)

    def keep(self, size_bytes: int) -> None:
        """Count a part of an answer that is already in memory, until the answer is built."""
        self._reserved_bytes += size_bytes
        self._share.hold(size_bytes)
