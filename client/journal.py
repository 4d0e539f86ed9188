"""The client's log lines: what happens to it, and what it waits for, limited in number.

Everything is logged under one name, `odradek.client`, by the standard library's `logging`:

    connected       INFO     a connection was opened
    retried         INFO     a call or a batch is sent again
    joined, left    INFO     a consumer became a member of its group, or left it, and why
    assigned        INFO     partitions came to a member of a group
    revoked, lost   INFO     they went to other members, at a poll or without notice
    transaction     INFO     a transaction was begun, prepared, detached, committed or aborted
    fenced          INFO     a producer may not go on, because of a newer one or an administrator
    lost            WARNING  a connection could not be opened, or was lost before its answers came
    no token        WARNING  a session ends soon, and its token cannot be renewed now
    retrying        WARNING  a call or a batch has been retried for longer than a second
    topic awaited   WARNING  the same, because a topic does not exist
    topic created   WARNING  a topic did not exist, and the first record for it has created it
    offset reset    WARNING  a consumer continues at another offset than its position
    record lost     WARNING  a producer was left without flush
    poll late       WARNING  a program did not poll for max_poll_interval_ms and left its group
    not left        WARNING  a group was left and its coordinator does not know it
    not stored      WARNING  offsets were to be stored in the background, and were not
    outdated        WARNING  offsets are not stored, because their topic was made anew
    classic         INFO     a group is joined with the classic protocol, which the broker demands
    has members     WARNING  offsets of a group with members were stored without a membership
    held back       WARNING  polls stay empty, because records wait behind an open transaction

A line of level INFO begins with the client id. When a broker is down, the same event happens many
times a second. So each kind of line about trouble is logged once for each place, and again after
`QUIET_S` with the number of omitted lines. A broker chooses some of the text, so the text is
shortened, and control characters are escaped (`protocol/text.py`).
"""

import logging
from typing import Final

import trio

from odradek.late import dataclass
from odradek.protocol.text import printable

LOGGER: Final = logging.getLogger("odradek.client")

TOPIC_CREATED: Final = "topic created"
"""The attribute `event` of the record that is logged for a new topic."""
QUIET_S: Final = 30.0
"""The time in which the same kind of line about the same place is not repeated."""
RETRIED_S: Final = 1.0
"""Shorter retries are not logged. They are normal: a leader moves, a transaction is being ended."""
PLACES_MAX: Final = 1_000
"""Places that are remembered. When they are more, all are forgotten and may be logged again."""
TEXT_MAX: Final = 500
"""The largest number of characters of one text in a line."""


@dataclass(slots=True)
class _Quiet:
    """The time until which a line is not repeated, and the number of omitted repetitions."""

    until: float
    left_out: int = 0


class Journal:
    """The log lines of one client."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._quiet: dict[tuple[str, str], _Quiet] = {}

    def note_connected(self, peer: str) -> None:
        self._say("connected to %s", peer)

    def note_lost(self, place: str, why: object) -> None:
        self._warn("lost", place, f"lost {place}: {why}")

    def note_no_token(self, place: str, why: object) -> None:
        text = f"the session at {place} ends soon, and there is no new token yet: {why}"
        self._warn("no token", place, text)

    def retrying(self, doing: str, since: float, why: object) -> None:
        seconds = trio.current_time() - since
        if seconds >= RETRIED_S:
            self._warn("retrying", doing, f"{doing}: trying again for {seconds:.0f} s now ({why})")
        elif LOGGER.isEnabledFor(logging.INFO):
            text = f"{self._client_id}: {doing}: trying again ({why})"
            self._limited(logging.INFO, "retried", doing, text)

    def topic_awaited(self, topic: str) -> None:
        self._warn("topic awaited", topic, f"the topic {topic!r} is not there; waiting for it")

    def topic_created(self, topic: str, partition_count: int) -> None:
        """Log what may be a misspelt name. Commands show it (`TOPIC_CREATED`)."""
        noun = "partition" if partition_count == 1 else "partitions"
        text = f"the topic {topic!r} did not exist: it was created, {partition_count} {noun}"
        LOGGER.warning("%s", loggable(text), extra={"event": TOPIC_CREATED, "cause": TOPIC_CREATED})

    def offset_reset(self, partition: str, text: str) -> None:
        self._warn("offset reset", partition, text)

    def poll_is_late(self, group_id: str, limit_ms: int) -> None:
        self._warn(
            "poll late",
            group_id,
            f"the program did not poll for {limit_ms} ms: it has left the group {group_id!r}, and "
            f"its partitions go to other members; poll more often, take fewer records at a time "
            f"(max_poll_records), or raise max_poll_interval_ms",
        )

    def not_left(self, group_id: str, why: object) -> None:
        self._warn(
            "not left",
            group_id,
            f"leaving the group {group_id!r} is not confirmed ({why}); its partitions go to other "
            f"members when the session is over",
        )

    def not_stored(self, group_id: str, why: object) -> None:
        self._warn(
            "not stored",
            group_id,
            f"offsets of the group {group_id!r} were not stored ({why}); records behind the stored "
            f"ones are read again",
        )

    def note_outdated(self, group_id: str, why: str) -> None:
        self._warn("outdated", group_id, f"offsets of the group {group_id!r} are not stored: {why}")

    def group_is_classic(self, group_id: str, why: object) -> None:
        self._say("the group %r has the classic protocol (%s)", group_id, why)

    # The life of a member and of a transaction

    def note_joined(self, group_id: str, member_id: str, generation: int) -> None:
        self._say("joined the group %r as %s, generation %d", group_id, member_id, generation)

    def note_assigned(self, group_id: str, partitions: str) -> None:
        self._say("the group %r has assigned %s", group_id, partitions)

    def note_revoked(self, group_id: str, partitions: str) -> None:
        self._say("the group %r has revoked %s", group_id, partitions)

    def note_expelled(self, group_id: str, partitions: str, why: object) -> None:
        because = f": {why}" if why else ""
        self._say("lost %s, and is no member of the group %r%s", partitions, group_id, because)

    def note_left(self, group_id: str, why: str) -> None:
        self._say("left the group %r: %s", group_id, why)

    def transaction(self, event: str, transactional_id: str) -> None:
        self._say("%s the transaction of %r", event, transactional_id)

    def note_aborted(self, transactional_id: str, why: object) -> None:
        self._say("aborted the transaction of %r%s", transactional_id, f": {why}" if why else "")

    def group_ended(self, name: str, count: int, *, committed: bool) -> None:
        event = "committed" if committed else "aborted"
        self._say("%s %d transactions of the transaction group %r", event, count, name)

    def producer_failed(self, transactional_id: str, error: object, *, is_fenced: bool) -> None:
        self._say("%r %s: %s", transactional_id, "is fenced" if is_fenced else "has failed", error)

    def note_held_back(self, sentence: str) -> None:
        LOGGER.warning("%s", loggable(sentence), extra={"cause": "held back"})

    def group_has_members(self, group_id: str) -> None:
        self._warn(
            "has members",
            group_id,
            f"send_offsets was called with the name of the group {group_id!r} alone, and the group "
            f"has members: the broker cannot see whether this program still owns the partitions, "
            f"and another one may process the same records; pass consumer.group_metadata()",
        )

    def _say(self, text: str, *values: object) -> None:
        """Log at INFO. The text is made only if it is wanted: programs have many transactions."""
        if LOGGER.isEnabledFor(logging.INFO):
            LOGGER.info("%s", loggable(f"{self._client_id}: {text % values}"))

    def _warn(self, kind: str, place: str, text: str) -> None:
        self._limited(logging.WARNING, kind, place, text)

    def _limited(self, level: int, kind: str, place: str, text: str) -> None:
        now = trio.current_time()
        quiet = self._quiet.get((kind, place))
        if quiet is not None and now < quiet.until:
            quiet.left_out += 1
            return
        if len(self._quiet) >= PLACES_MAX:
            self._quiet.clear()
        self._quiet[(kind, place)] = _Quiet(now + QUIET_S)
        if quiet is not None and quiet.left_out:
            text = f"{text} ({quiet.left_out} times more since the last such line)"
        LOGGER.log(level, "%s", loggable(text), extra={"cause": kind})


def records_were(count: int) -> str:
    """Return the subject and the verb of a sentence about lost records."""
    return "1 record was" if count == 1 else f"{count} records were"


def loggable(text: object) -> str:
    """Return a text from a peer or a program, shortened and without control characters."""
    return printable(str(text)[:TEXT_MAX])
