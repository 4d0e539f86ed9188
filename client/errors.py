"""The exceptions of the client, by what a program can do about them.

A broker's error code names what the broker found. A program must decide whether to try again, to
abort the transaction, or to stop. So each class here stands for one of these decisions, and the
code is an attribute. Every message states what happened and what to do.
"""

from typing import Final, Self

from odradek.protocol.errors import PHRASES, RETRIABLE, ErrorCode
from odradek.protocol.text import shortened


class OdradekError(Exception):
    """The base class of the client's exceptions.

    `code` is the broker's error code, or None if the client itself found the error.
    """

    def __init__(self, message: str, *, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.code = code

    def copy(self) -> Self:
        """Return an equal error to raise elsewhere: one raised twice mixes two tracebacks."""
        return type(self)(str(self), code=self.code)


class Retriable(OdradekError):
    """The same call may succeed later. The client has already retried it within its time limit."""


class TimedOut(Retriable):
    """No answer came in time. Unless the message says so, the outcome is not known."""


class Disconnected(Retriable):
    """The connection was lost or could not be made."""


class BufferFull(Retriable):
    """The producer's buffer had no room in time. Wait and send again."""


class Busy(Retriable):
    """Every producer was in a transaction for as long as the call waited. Nothing was begun."""


class Refused(OdradekError):
    """The request itself is wrong. Trying again does not help."""


class AuthenticationFailed(Refused):
    """The broker does not accept the name, the password or the token, or is not the right one.

    Trying again does not help. The message has the broker's words, and no secret.
    """


class OffsetOutOfRange(Refused):
    """The partition does not have the requested offset."""


class Rebalanced(Refused):
    """The group has given the partitions to other members, or may have. Poll, which joins again.

    Nothing was stored. The records since the last stored offset are read again, by this member or
    by another one.
    """


class Aborted(OdradekError):
    """The transaction cannot be committed. Leave its block (that aborts it); do its work again."""


class Fatal(OdradekError):
    """The producer cannot be used any more. Make a new one."""


class Fenced(Fatal):
    """Another producer or an administrator has taken over the transactional id. Stop this one."""


class Closed(OdradekError):
    """The client was used after it was closed, or was closed while the call waited."""


ABORTABLE: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
"""The codes that end one transaction and leave its producer usable."""

FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
"""The codes for an old epoch: of coordinators, and of partitions and old versions."""

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
"""The codes after which a transactional producer cannot go on."""

_STOP: Final = "stop this one, or make a new one if it is alone"
_TAKEN_OVER: Final = (
    "another producer or an administrator has taken this transactional id over, or its transaction "
    f"timed out; {_STOP}"
)

_NEEDS_ENTRY: Final = (
    "an ACL entry must allow it; `odradek acl why` shows an administrator what decides"
)

_ADVICE: Final[dict[ErrorCode, str]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _NEEDS_ENTRY,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _NEEDS_ENTRY,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _NEEDS_ENTRY,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _NEEDS_ENTRY,
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
        "a transaction that stores offsets of this group is still open; wait until it has ended "
        "(`odradek txn who-pins __consumer_offsets` names it)"
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
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the members of the group have no assignor in common; give this one one of theirs "
        "(partition_assignors)"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "set session_timeout_ms between the broker's group.min.session.timeout.ms and "
        "group.max.session.timeout.ms"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        "stop a member, or raise the broker's group.max.size or group.consumer.max.size"
    ),
    ErrorCode.UNRELEASED_INSTANCE_ID: (
        "a member has this group_instance_id: it runs, or it was killed and its "
        "session is not over; give each its own, or start again after that session"
    ),
    ErrorCode.UNSUPPORTED_ASSIGNOR: (
        "set group_remote_assignor to one of the broker's group.consumer.assignors"
    ),
    ErrorCode.STALE_MEMBER_EPOCH: "the group has rebalanced: process its records again",
    ErrorCode.FENCED_MEMBER_EPOCH: "join the group again, and process its records again",
    ErrorCode.ILLEGAL_GENERATION: "the group has rebalanced: process its records again",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: (
        "store less metadata with the offset, or raise offset.metadata.max.bytes"
    ),
    ErrorCode.INVALID_REGULAR_EXPRESSION: (
        "brokers read patterns as RE2 does, without references back and looking around"
    ),
    ErrorCode.NON_EMPTY_GROUP: "stop the group's members first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (
        "members of the group read this topic; stop them first, or let them unsubscribe"
    ),
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
"""Codes of TxnOffsetCommit and AddPartitionsToTxn that end the transaction, not the producer."""


def code_of(number: int) -> ErrorCode:
    """Return the name of an error code; UNKNOWN_SERVER_ERROR for a code that this client lacks."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def explain(code: ErrorCode, doing: str, said: str | None = None) -> str:
    """Return a message: what was being done, the code, the broker's message, and what to do.

    Odradek's message has the advice in its second sentence. For other brokers it is added here.
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
    """Return the exception for a code that a broker returned while `doing` something."""
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
    """Return the exception for a code that decides about a transaction and its producer."""
    message = explain(code, doing, said)
    if code in FENCED:
        return Fenced(message, code=code)
    if code in FATAL:
        return Fatal(message, code=code)
    if code in ABORTABLE or code in _TRANSACTION_ENDS:
        return Aborted(message, code=code)
    return error_for(code, doing, said)
