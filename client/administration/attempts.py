"""The attempts of a change, of which one may have been carried out although its answer was lost.

A call is tried again after a lost connection. If the first attempt was carried out, the second one
is refused: the topic is there already, or is gone. The broker cannot tell this from a mistake of
the program, so the error says both.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from odradek.client.cluster.cluster import Cluster
from odradek.client.errors import Refused
from odradek.protocol.api import Api
from odradek.protocol.errors import ErrorCode

Request = TypeVar("Request")
Response = TypeVar("Response")

DONE_BEFORE: Final = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PARTITIONS,
    }
)
"""The answers to a change that was carried out before."""


class Attempts:
    """The attempts of one call."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._unanswered = 0

    async def ask(
        self, node_id: int | None, api: Api[Request, Response], request: Request
    ) -> Response:
        """Send one request as `Cluster.ask` does."""
        answer = await self._cluster.ask(node_id, api, request, on_sent=self._note_sent)
        self._unanswered -= 1
        return answer

    def _note_sent(self) -> None:
        self._unanswered += 1

    @property
    def may_be_done(self) -> bool:
        """Return True if an attempt was sent, and its answer was lost."""
        return self._unanswered > 0

    @contextmanager
    def remarking(self) -> Iterator[None]:
        """Add to a refusal that an earlier attempt may have made the change."""
        try:
            yield
        except Refused as error:
            if not self.may_be_done or error.code not in DONE_BEFORE:
                raise
            raise Refused(
                f"{error}; an earlier attempt of this call has got no answer, and may have done it",
                code=error.code,
            ) from None
