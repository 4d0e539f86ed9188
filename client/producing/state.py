"""The states of a transactional producer, as one table. Pure: it decides and touches nothing.

    NEW --> READY: INITIALISED
    READY --> OPEN: BEGIN
    NEW, OPEN --> PREPARED: PREPARE
    OPEN --> DETACHED: DETACH
    OPEN, PREPARED --> COMMITTING: COMMIT
    OPEN, PREPARED, DETACHED, IN_DOUBT, ABORTABLE --> ABORTING: ABORT
    COMMITTING, ABORTING --> READY: ENDED
    OPEN, COMMITTING --> ABORTABLE: ABORT_NEEDED, TIMED_OUT
    OPEN, COMMITTING --> IN_DOUBT: DOUBT
    PREPARED, DETACHED, IN_DOUBT --> ABORTABLE: TIMED_OUT
    NEW, READY, OPEN, PREPARED, DETACHED, IN_DOUBT, ABORTABLE, COMMITTING, ABORTING --> FAILED: FAIL

PREPARE is an event in NEW if the instance before has left a prepared transaction.

IN_DOUBT has no counterpart in Kafka's client. A broker answers INVALID_PRODUCER_EPOCH both to a
producer whose transaction timed out and to one that a successor has replaced. The first may go on
after an abort and the second must stop. Only the coordinator knows which, so the client asks it
before it raises `Fenced`. With TV2 the question is an abort under the spent epoch: the coordinator
returns the next epoch after a time-out, and refuses after a take-over.
"""

from enum import Enum, auto
from typing import Final

from odradek.client.errors import Aborted, Fatal, OdradekError, Refused
from odradek.protocol.transition_table import Rows, TransitionTable


class SessionState(Enum):
    NEW = "not initialised"
    READY = "no transaction open"
    OPEN = "open"
    PREPARED = "prepared"
    DETACHED = "detached"
    # invariant client 4: `Fenced` is raised only after the coordinator has confirmed it: a
    # partition's answer is the same for a time-out.
    # tests/client/producing/test_transaction_fenced.py
    IN_DOUBT = "in doubt: finding out whether it timed out or was fenced"
    ABORTABLE = "to be aborted"
    COMMITTING = "committing"
    ABORTING = "aborting"
    FAILED = "failed"


class SessionEvent(Enum):
    INITIALISED = auto()
    BEGIN = auto()
    SEND = auto()
    """Records or offsets are given to the transaction."""
    PREPARE = auto()
    """All of it is stored, and another system decides how it ends; or one such was found."""
    DETACH = auto()
    """All of it is stored, and its transaction group decides how it ends."""
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


Error = tuple[type[OdradekError], str]
Cell = SessionState | Error

E = SessionEvent
NEW, READY, OPEN, PREP, DETACH, DOUBT, DOOMED, COMMIT, ABORT, FAIL = tuple(SessionState)

UNUSED: Final = (Refused, "the producer has not been started: use it with `async with`")
TWICE: Final = (Refused, "the producer is initialised already")
CLOSED: Final = (Refused, "no transaction is open: send inside `with producer.transaction()`")
BEGUN: Final = (Refused, "a transaction is open already: end it before the next one begins")
KEPT: Final = (Refused, "the transaction is prepared: commit, abort or complete it")
GIVEN: Final = (Refused, "the transaction is detached, its group ends it: make a new producer")
ENDING: Final = (Refused, "the transaction is being ended: begin another one for more")
UNFIT: Final = (Aborted, "the transaction cannot be committed: abort it and do its work again")
OVER: Final = (Fatal, "the producer has failed: make a new one")

# ABORT_NEEDED and DOUBT come with answers of brokers. In Ready, such an answer is late: it is about
# a transaction that has ended. In Prep. and Detach., everything is stored, so the answer cannot be
# about what was promised. In Doomed, the abort finds out by itself why the epoch was refused.
# fmt: off
ROWS: Final[Rows[SessionEvent, Cell]] = (
    #                New     Ready   Open    Prep.   Detach. Doubt   Doomed  Commit  Abort   Failed
    (E.INITIALISED, (READY,  TWICE,  TWICE,  TWICE,  TWICE,  TWICE,  TWICE,  TWICE,  TWICE,  OVER)),
    (E.BEGIN,       (UNUSED, OPEN,   BEGUN,  KEPT,   GIVEN,  BEGUN,  BEGUN,  ENDING, ENDING, OVER)),
    (E.SEND,        (UNUSED, CLOSED, OPEN,   KEPT,   GIVEN,  DOUBT,  UNFIT,  ENDING, ENDING, OVER)),
    (E.PREPARE,     (PREP,   CLOSED, PREP,   KEPT,   GIVEN,  UNFIT,  UNFIT,  ENDING, ENDING, OVER)),
    (E.DETACH,      (UNUSED, CLOSED, DETACH, KEPT,   GIVEN,  UNFIT,  UNFIT,  ENDING, ENDING, OVER)),
    (E.COMMIT,      (UNUSED, CLOSED, COMMIT, COMMIT, GIVEN,  UNFIT,  UNFIT,  ENDING, ENDING, OVER)),
    (E.ABORT,       (UNUSED, CLOSED, ABORT,  ABORT,  ABORT,  ABORT,  ABORT,  ENDING, ENDING, OVER)),
    (E.ENDED,       (UNUSED, CLOSED, BEGUN,  KEPT,   GIVEN,  BEGUN,  BEGUN,  READY,  READY,  OVER)),
    (E.ABORT_NEEDED,(NEW,    READY,  DOOMED, PREP,   DETACH, DOUBT,  DOOMED, DOOMED, ABORT,  FAIL)),
    (E.DOUBT,       (NEW,    READY,  DOUBT,  PREP,   DETACH, DOUBT,  DOOMED, DOUBT,  ABORT,  FAIL)),
    (E.TIMED_OUT,   (NEW,    READY,  DOOMED, DOOMED, DOOMED, DOOMED, DOOMED, DOOMED, ABORT,  FAIL)),
    (E.FAIL,        (FAIL,   FAIL,   FAIL,   FAIL,   FAIL,   FAIL,   FAIL,   FAIL,   FAIL,   FAIL)),
)
# fmt: on
TABLE: Final = TransitionTable(SessionState, SessionEvent, ROWS)


def state_after(state: SessionState, event: SessionEvent) -> SessionState:
    """Return the state after `event`.

    Raises `Refused`, `Aborted` or `Fatal` where the event is not allowed.
    """
    following = TABLE[state, event]
    if isinstance(following, SessionState):
        return following
    kind, message = following
    raise kind(message)
