"""What can go wrong for a user of the client, by what there is to do about it.

A broker's error code says what the broker saw; whether to ask again, to abort the transaction, or
to stop is what a program must decide on. So the kinds of error here are answers to that question,
and the code is an attribute for those who want it. Every message is a sentence that says what
happened and what to do.
"""

from typing import Final, Self

from odradek.protocol.errors import PHRASES, RETRIABLE, ErrorCode
from odradek.protocol.text import shortened


class OdradekError(Exception):
    """Anything the client raises on purpose.

    `code` is the broker's error code, or None where the client itself noticed.
    """

    def __init__(self, message: str, *, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.code = code

    def copy(self) -> Self:
        """The same error to raise elsewhere: an exception raised twice shows two histories."""
        return type(self)(str(self), code=self.code)


class Retriable(OdradekError):
    """The same call may succeed later. The client has already retried for as long as it may."""


class TimedOut(Retriable):
    """No answer came in time. Whether it was done is not known, unless the message says so."""


class Disconnected(Retriable):
    """The connection was lost or could not be made."""


class BufferFull(Retriable):
    """The producer's buffer has no room, or does not know the topic yet: wait and send again."""


class Refused(OdradekError):
    """The request itself is at fault: asking again does not help."""


class OffsetOutOfRange(Refused):
    """The partition does not have the offset that was asked for."""


class Aborted(OdradekError):
    """The transaction cannot be committed. Leave it (that aborts it) and do its work again."""


class Fatal(OdradekError):
    """The producer cannot be used any more. Make a new one."""


class Fenced(Fatal):
    """Another producer, or an administrator, took the transactional id over. This one must stop."""


class Closed(OdradekError):
    """It was used after it had been closed, or closed while it was waiting."""


ABORTABLE: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
"""Refusals that end one transaction and leave its producer usable."""

FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
"""Two names for one thing: coordinators say the first, partitions and old versions the other."""

FATAL: Final = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""Refusals after which a transactional producer has no way on."""

_STOP: Final = "stop this one, or make a new one if it is alone"
_TAKEN_OVER: Final = (
    "another producer or an administrator has taken this transactional id over, or its transaction "
    f"timed out; {_STOP}"
)

_ADVICE: Final[dict[ErrorCode, str]] = {
    ErrorCode.PRODUCER_FENCED: _TAKEN_OVER,
    ErrorCode.INVALID_PRODUCER_EPOCH: _TAKEN_OVER,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: (
        "the broker no longer knows this transactional id (it expires when unused); "
        "make a new producer"
    ),
    ErrorCode.INVALID_TXN_STATE: (
        "the broker has no such transaction open; make a new producer, which starts from a known "
        "state"
    ),
    ErrorCode.TRANSACTION_ABORTABLE: "abort the transaction and do its work again",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "lower transaction_timeout_ms or raise the broker's transaction.max.timeout.ms"
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        "create the topic, or check its name and the number of its partitions"
    ),
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name, or use the topic that is there",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "a topic's name has 1 to 249 of the characters a-z A-Z 0-9 . _ - and is not '.', '..' or"
        " that of one of the broker's own"
    ),
    ErrorCode.MESSAGE_TOO_LARGE: (
        "send smaller records or batches, or raise the topic's max.message.bytes"
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: "lower batch_bytes, or raise the topic's segment.bytes",
    ErrorCode.OFFSET_OUT_OF_RANGE: "seek to an offset that the partition has",
    ErrorCode.INVALID_REPLICATION_FACTOR: (
        "ask for no more replicas than there are brokers, or leave the number to the broker"
    ),
    ErrorCode.UNSUPPORTED_VERSION: "the broker is too old, or too new, for this call",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: (
        "a transaction that stores offsets of this group is still open; wait until it has ended"
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS: (
        "fewer replicas are in sync than the topic's min.insync.replicas; bring brokers back"
    ),
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker could not write to its disk; look at its log",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the transaction before this one is still being ended",
    ErrorCode.FENCED_INSTANCE_ID: (
        "another member of the group uses this group.instance.id; give each its own"
    ),
    ErrorCode.UNKNOWN_MEMBER_ID: "join the group again, and process its records again",
    ErrorCode.ILLEGAL_GENERATION: "the group has rebalanced: process its records again",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: (
        "store less metadata with the offset, or raise offset.metadata.max.bytes"
    ),
    ErrorCode.INVALID_REGULAR_EXPRESSION: (
        "brokers read patterns as RE2 does, without references back and looking around"
    ),
    ErrorCode.NON_EMPTY_GROUP: "stop the group's members first",
}

_TRANSACTION_ENDS: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""What TxnOffsetCommit and AddPartitionsToTxn may say that costs the transaction and no more."""


def code_of(number: int) -> ErrorCode:
    """The name of an error code; one that is newer than this client is an unknown server error."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def explain(code: ErrorCode, doing: str, said: str | None = None) -> str:
    """One sentence: what was being done, the code, the broker's own words, what to do.

    Odradek's brokers say what to do in a second sentence of their own; others leave that to us.
    """
    sentence = f"{doing}: the broker answered {code.name}"
    if said:
        sentence += f" ({shortened(said.rstrip('. '))})"
    advice = _ADVICE.get(code)
    own_words = (said or "").removeprefix(PHRASES.get(code, "")).strip(". ")
    if ". " in own_words:
        advice = None
    elif own_words and code in FENCED:
        advice = _STOP
    return f"{sentence}; {advice}" if advice else sentence


def error_for(code: ErrorCode, doing: str, said: str | None = None) -> OdradekError:
    """The exception for a code that the broker answered while `doing` something."""
    message = explain(code, doing, said)
    if code in FENCED:
        return Fenced(message, code=code)
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return OffsetOutOfRange(message, code=code)
    if code in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        return Aborted(message, code=code)
    if code == ErrorCode.REQUEST_TIMED_OUT:
        return TimedOut(message, code=code)
    if code in RETRIABLE:
        return Retriable(message, code=code)
    return Refused(message, code=code)


def transactional_error_for(code: ErrorCode, doing: str, said: str | None = None) -> OdradekError:
    """The same, where the answer decides about a transaction and its producer."""
    message = explain(code, doing, said)
    if code in FENCED:
        return Fenced(message, code=code)
    if code in FATAL:
        return Fatal(message, code=code)
    if code in ABORTABLE or code in _TRANSACTION_ENDS:
        return Aborted(message, code=code)
    return error_for(code, doing, said)
