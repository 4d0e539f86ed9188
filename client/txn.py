"""What a transactional producer may do, as one table. Pure: it decides and touches nothing.

             INITIALISED           BEGIN            COMMIT                 ENDED
    NEW ---------------> READY ---------> OPEN ------------> COMMITTING ---------> READY
                                           |  \\                  |
                              DOUBT (was   |   \\ ABORT_NEEDED     | ABORT_NEEDED: a record of the
                              it a time-   v    v                 v transaction was not stored
                              out or a   IN_DOUBT --> ABORTABLE <-'
                              successor?)    TIMED_OUT   | ABORT
                                                         v          ENDED
                                                      ABORTING ------------> READY

PREPARE leads from OPEN, when all of it is stored, and from NEW, if the instance before has left one
behind, to PREPARED; COMMIT and ABORT lead on from there as from OPEN. FAIL leads to FAILED from
everywhere, and from there nothing leads on.

IN_DOUBT is ours. A broker answers INVALID_PRODUCER_EPOCH both to a producer whose transaction timed
out and to one that a successor has replaced. The first may go on after an abort and the second must
stop, so the client asks the coordinator, which knows, before it says "fenced" to anybody: with TV2
an abort under the spent epoch is answered with the next epoch after a time-out, and refused after
a take-over.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from odradek.client.errors import Aborted, Fatal, OdradekError, Refused


class State(Enum):
    NEW = "not initialised"
    READY = "no transaction open"
    OPEN = "open"
    PREPARED = "prepared"
    IN_DOUBT = "in doubt: finding out whether it timed out or was fenced"
    ABORTABLE = "to be aborted"
    COMMITTING = "committing"
    ABORTING = "aborting"
    FAILED = "failed"


class Event(Enum):
    INITIALISED = auto()
    BEGIN = auto()
    SEND = auto()
    """Records or offsets are given to the transaction."""
    PREPARE = auto()
    """All of it is stored, and somebody else decides how it ends; or such a one was found."""
    COMMIT = auto()
    ABORT = auto()
    ENDED = auto()
    """The coordinator has confirmed the end."""
    ABORT_NEEDED = auto()
    """Something of the transaction was refused or lost."""
    DOUBT = auto()
    """A broker refused the producer's epoch."""
    TIMED_OUT = auto()
    """The coordinator says that the epoch went up because of a time-out, not of a successor."""
    FAIL = auto()


_UNTOUCHED: Final = "the producer has not been started: use it with `async with`"
_NOT_OPEN: Final = "no transaction is open: send inside `with producer.transaction()`"
_OPEN: Final = "a transaction is open already: end it before the next one begins"
_ENDING: Final = "the transaction is being ended: begin another one for more"
_ABORT_FIRST: Final = "the transaction cannot be committed: abort it and do its work again"
_PREPARED: Final = "the transaction is prepared: commit, abort or complete it"
_OVER: Final = "the producer has failed: make a new one"
_TWICE: Final = "the producer is initialised already"

REFUSED: Final = Refused
ABORTED: Final = Aborted
FATAL: Final = Fatal

Refusal = tuple[type[OdradekError], str]

TABLE: Final[Mapping[State, Mapping[Event, State | Refusal]]] = {
    State.NEW: {
        Event.INITIALISED: State.READY,
        Event.BEGIN: (REFUSED, _UNTOUCHED),
        Event.SEND: (REFUSED, _UNTOUCHED),
        Event.PREPARE: State.PREPARED,
        Event.COMMIT: (REFUSED, _UNTOUCHED),
        Event.ABORT: (REFUSED, _UNTOUCHED),
        Event.ENDED: (REFUSED, _UNTOUCHED),
        Event.ABORT_NEEDED: State.NEW,
        Event.DOUBT: State.NEW,
        Event.TIMED_OUT: State.NEW,
        Event.FAIL: State.FAILED,
    },
    State.READY: {
        Event.INITIALISED: (REFUSED, _TWICE),
        Event.BEGIN: State.OPEN,
        Event.SEND: (REFUSED, _NOT_OPEN),
        Event.PREPARE: (REFUSED, _NOT_OPEN),
        Event.COMMIT: (REFUSED, _NOT_OPEN),
        Event.ABORT: (REFUSED, _NOT_OPEN),
        Event.ENDED: (REFUSED, _NOT_OPEN),
        # A late answer about a transaction that is over changes nothing.
        Event.ABORT_NEEDED: State.READY,
        Event.DOUBT: State.READY,
        Event.TIMED_OUT: State.READY,
        Event.FAIL: State.FAILED,
    },
    State.OPEN: {
        Event.INITIALISED: (REFUSED, _TWICE),
        Event.BEGIN: (REFUSED, _OPEN),
        Event.SEND: State.OPEN,
        Event.PREPARE: State.PREPARED,
        Event.COMMIT: State.COMMITTING,
        Event.ABORT: State.ABORTING,
        Event.ENDED: (REFUSED, _OPEN),
        Event.ABORT_NEEDED: State.ABORTABLE,
        Event.DOUBT: State.IN_DOUBT,
        Event.TIMED_OUT: State.ABORTABLE,
        Event.FAIL: State.FAILED,
    },
    State.PREPARED: {
        Event.INITIALISED: (REFUSED, _TWICE),
        Event.BEGIN: (REFUSED, _PREPARED),
        Event.SEND: (REFUSED, _PREPARED),
        Event.PREPARE: (REFUSED, _PREPARED),
        Event.COMMIT: State.COMMITTING,
        Event.ABORT: State.ABORTING,
        Event.ENDED: (REFUSED, _PREPARED),
        # Everything is stored: what is answered late cannot be about what was promised.
        Event.ABORT_NEEDED: State.PREPARED,
        Event.DOUBT: State.PREPARED,
        Event.TIMED_OUT: State.ABORTABLE,
        Event.FAIL: State.FAILED,
    },
    State.IN_DOUBT: {
        Event.INITIALISED: (REFUSED, _TWICE),
        Event.BEGIN: (REFUSED, _OPEN),
        Event.SEND: State.IN_DOUBT,
        Event.PREPARE: (ABORTED, _ABORT_FIRST),
        Event.COMMIT: (ABORTED, _ABORT_FIRST),
        Event.ABORT: State.ABORTING,
        Event.ENDED: (REFUSED, _OPEN),
        Event.ABORT_NEEDED: State.IN_DOUBT,
        Event.DOUBT: State.IN_DOUBT,
        Event.TIMED_OUT: State.ABORTABLE,
        Event.FAIL: State.FAILED,
    },
    State.ABORTABLE: {
        Event.INITIALISED: (REFUSED, _TWICE),
        Event.BEGIN: (REFUSED, _OPEN),
        Event.SEND: (ABORTED, _ABORT_FIRST),
        Event.PREPARE: (ABORTED, _ABORT_FIRST),
        Event.COMMIT: (ABORTED, _ABORT_FIRST),
        Event.ABORT: State.ABORTING,
        Event.ENDED: (REFUSED, _OPEN),
        Event.ABORT_NEEDED: State.ABORTABLE,
        # The abort finds out by itself.
        Event.DOUBT: State.ABORTABLE,
        Event.TIMED_OUT: State.ABORTABLE,
        Event.FAIL: State.FAILED,
    },
    State.COMMITTING: {
        Event.INITIALISED: (REFUSED, _TWICE),
        Event.BEGIN: (REFUSED, _ENDING),
        Event.SEND: (REFUSED, _ENDING),
        Event.PREPARE: (REFUSED, _ENDING),
        Event.COMMIT: (REFUSED, _ENDING),
        Event.ABORT: (REFUSED, _ENDING),
        Event.ENDED: State.READY,
        Event.ABORT_NEEDED: State.ABORTABLE,
        Event.DOUBT: State.IN_DOUBT,
        Event.TIMED_OUT: State.ABORTABLE,
        Event.FAIL: State.FAILED,
    },
    State.ABORTING: {
        Event.INITIALISED: (REFUSED, _TWICE),
        Event.BEGIN: (REFUSED, _ENDING),
        Event.SEND: (REFUSED, _ENDING),
        Event.PREPARE: (REFUSED, _ENDING),
        Event.COMMIT: (REFUSED, _ENDING),
        Event.ABORT: (REFUSED, _ENDING),
        Event.ENDED: State.READY,
        Event.ABORT_NEEDED: State.ABORTING,
        Event.DOUBT: State.ABORTING,
        Event.TIMED_OUT: State.ABORTING,
        Event.FAIL: State.FAILED,
    },
    State.FAILED: {
        Event.INITIALISED: (FATAL, _OVER),
        Event.BEGIN: (FATAL, _OVER),
        Event.SEND: (FATAL, _OVER),
        Event.PREPARE: (FATAL, _OVER),
        Event.COMMIT: (FATAL, _OVER),
        Event.ABORT: (FATAL, _OVER),
        Event.ENDED: (FATAL, _OVER),
        Event.ABORT_NEEDED: State.FAILED,
        Event.DOUBT: State.FAILED,
        Event.TIMED_OUT: State.FAILED,
        Event.FAIL: State.FAILED,
    },
}


def step(state: State, event: Event) -> State:
    """The state after `event`. Raises `Refused`, `Aborted` or `Fatal` where it is not allowed."""
    following = TABLE[state][event]
    if isinstance(following, State):
        return following
    kind, message = following
    raise kind(message)
