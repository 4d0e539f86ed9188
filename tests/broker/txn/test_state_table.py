"""The table against what Apache Kafka 4.3 answers, written out once more, independently.

Each expectation below is a request as a client sends it; the rows are what the producer finds. `->`
is a transition, a word in capitals an error, NONE success without a change, `wait` what Kafka
answers with CONCURRENT_TRANSACTIONS and we do when the wait is over.
"""

from dataclasses import replace

import pytest

from odradek.broker.txn import state
from odradek.broker.txn.events import (
    Answer,
    Event,
    StepRequest,
    add_event,
    disconnect_event,
    end_event,
    init_event,
)
from odradek.broker.txn.moves import Move
from odradek.broker.txn.state import TABLE, Cell
from odradek.broker.txn.transaction import (
    NO_TIMEOUT_MS,
    BumpCause,
    ProducerIdAndEpoch,
    State,
    TransactionMetadata,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.transition_table import NEVER, Impossible
from tests.broker.txn.world import P0, P1, producer

CURRENT = producer(7, 5)
LAST = producer(7, 4)
OLDER = producer(7, 3)
HIGHER = producer(7, 6)
STRANGER = producer(8, 5)

PREVIOUS_STATES = """
Empty              Empty CompleteCommit CompleteAbort
Ongoing            Ongoing Empty CompleteCommit CompleteAbort
PrepareCommit      Ongoing
PrepareAbort       Ongoing PrepareEpochFence Empty CompleteCommit CompleteAbort
CompleteCommit     PrepareCommit
CompleteAbort      PrepareAbort
Dead               Empty CompleteAbort CompleteCommit
PrepareEpochFence  Ongoing
"""

END_OLD = """
state          commit             abort              wrong epoch        wrong id
Empty          INVALID_TXN_STATE  INVALID_TXN_STATE  PRODUCER_FENCED    INVALID_PRODUCER_ID_MAPPING
Ongoing        ->PrepareCommit    ->PrepareAbort     PRODUCER_FENCED    INVALID_PRODUCER_ID_MAPPING
PrepareCommit  wait               wait               PRODUCER_FENCED    INVALID_PRODUCER_ID_MAPPING
PrepareAbort   wait               wait               PRODUCER_FENCED    INVALID_PRODUCER_ID_MAPPING
CompleteCommit NONE               INVALID_TXN_STATE  PRODUCER_FENCED    INVALID_PRODUCER_ID_MAPPING
CompleteAbort  INVALID_TXN_STATE  NONE               PRODUCER_FENCED    INVALID_PRODUCER_ID_MAPPING
"""

END_TV2 = """
state          commit_retry       commit_current     abort_retry        abort_current
Empty          PRODUCER_FENCED    INVALID_TXN_STATE  PRODUCER_FENCED    ->PrepareAbort
Ongoing        PRODUCER_FENCED    ->PrepareCommit    PRODUCER_FENCED    ->PrepareAbort
PrepareCommit  wait               wait               wait               wait
PrepareAbort   wait               wait               wait               wait
CompleteCommit NONE               INVALID_TXN_STATE  INVALID_TXN_STATE  ->PrepareAbort
CompleteAbort  INVALID_TXN_STATE  INVALID_TXN_STATE  NONE               ->PrepareAbort
"""

INIT = """
state          nothing             current             last                older            stranger
Empty          ->Empty             ->Empty             ->Empty             PRODUCER_FENCED  PRODUCER_FENCED
Ongoing        ->PrepareEpochFence ->PrepareEpochFence ->PrepareEpochFence ->PrepareEpochFence PRODUCER_FENCED
PrepareCommit  wait                wait                wait                wait             wait
PrepareAbort   wait                wait                wait                wait             wait
CompleteCommit ->Empty             ->Empty             ->Empty             PRODUCER_FENCED  PRODUCER_FENCED
CompleteAbort  ->Empty             ->Empty             ->Empty             PRODUCER_FENCED  PRODUCER_FENCED
"""  # noqa: E501

ADD = """
state          new         known       older            higher           stranger
Empty          ->Ongoing   ->Ongoing   PRODUCER_FENCED  PRODUCER_FENCED  INVALID_PRODUCER_ID_MAPPING
Ongoing        ->Ongoing   NONE        PRODUCER_FENCED  PRODUCER_FENCED  INVALID_PRODUCER_ID_MAPPING
PrepareCommit  wait        wait        wait             wait             wait
PrepareAbort   wait        wait        wait             wait             wait
CompleteCommit ->Ongoing   ->Ongoing   PRODUCER_FENCED  PRODUCER_FENCED  INVALID_PRODUCER_ID_MAPPING
CompleteAbort  ->Ongoing   ->Ongoing   PRODUCER_FENCED  PRODUCER_FENCED  INVALID_PRODUCER_ID_MAPPING
"""

VERIFY = """
state          inside               outside                older            stranger
Empty          TRANSACTION_ABORTABLE TRANSACTION_ABORTABLE PRODUCER_FENCED  INVALID_PRODUCER_ID_MAPPING
Ongoing        NONE                 TRANSACTION_ABORTABLE  PRODUCER_FENCED  INVALID_PRODUCER_ID_MAPPING
PrepareCommit  CONCURRENT_TRANSACTIONS CONCURRENT_TRANSACTIONS PRODUCER_FENCED INVALID_PRODUCER_ID_MAPPING
PrepareAbort   CONCURRENT_TRANSACTIONS CONCURRENT_TRANSACTIONS PRODUCER_FENCED INVALID_PRODUCER_ID_MAPPING
CompleteCommit TRANSACTION_ABORTABLE TRANSACTION_ABORTABLE PRODUCER_FENCED  INVALID_PRODUCER_ID_MAPPING
CompleteAbort  TRANSACTION_ABORTABLE TRANSACTION_ABORTABLE PRODUCER_FENCED  INVALID_PRODUCER_ID_MAPPING
"""  # noqa: E501

INTERNAL = """
state             FENCE               DISCONNECT          DISCONNECT_STALE  ABORT_FENCED   MARKED           EXPIRE
Empty             late                late                late              never          never            ->Dead
Ongoing           ->PrepareEpochFence ->PrepareEpochFence late              never          never            late
PrepareCommit     late                late                late              never          ->CompleteCommit late
PrepareAbort      late                late                late              never          ->CompleteAbort  late
CompleteCommit    late                late                late              never          never            ->Dead
CompleteAbort     late                late                late              never          never            ->Dead
Dead              never               never               never             never          never            never
PrepareEpochFence never               never               never             ->PrepareAbort never            never
"""  # noqa: E501

KEEP = """
state          nothing    current    last             older            stranger
Empty          ->Empty    ->Empty    ->Empty          PRODUCER_FENCED  PRODUCER_FENCED
Ongoing        ->Ongoing  ->Ongoing  PRODUCER_FENCED  PRODUCER_FENCED  PRODUCER_FENCED
PrepareCommit  wait       wait       wait             wait             wait
PrepareAbort   wait       wait       wait             wait             wait
CompleteCommit ->Empty    ->Empty    ->Empty          PRODUCER_FENCED  PRODUCER_FENCED
CompleteAbort  ->Empty    ->Empty    ->Empty          PRODUCER_FENCED  PRODUCER_FENCED
"""

# A kept transaction: its records are of (7, 5), the new instance is (9, 3), and was (9, 2).
KEPT = """
request       new-instance  before           records          stranger
init          ->PrepareEpochFence ->PrepareEpochFence PRODUCER_FENCED PRODUCER_FENCED
keep          ->Ongoing     NONE             PRODUCER_FENCED  PRODUCER_FENCED
add           INVALID_TXN_STATE PRODUCER_FENCED INVALID_PRODUCER_ID_MAPPING INVALID_PRODUCER_ID_MAPPING
commit        ->PrepareCommit PRODUCER_FENCED INVALID_PRODUCER_ID_MAPPING INVALID_PRODUCER_ID_MAPPING
abort         ->PrepareAbort PRODUCER_FENCED INVALID_PRODUCER_ID_MAPPING INVALID_PRODUCER_ID_MAPPING
verify        INVALID_TXN_STATE PRODUCER_FENCED INVALID_PRODUCER_ID_MAPPING INVALID_PRODUCER_ID_MAPPING
disconnect    ->PrepareEpochFence late       late             late
"""  # noqa: E501

WORDS = {
    Answer.DONE: "NONE",
    Answer.BUSY: "wait",
    Answer.INVALID: "INVALID_TXN_STATE",
    Answer.FENCED: "PRODUCER_FENCED",
    Answer.FOREIGN: "INVALID_PRODUCER_ID_MAPPING",
    Answer.LATE: "late",
    NEVER: "never",
}

STATES = {member.label: member for member in State}


def cells(text: str) -> list[tuple[State, str, str]]:
    """(state, column, what is expected) of a table; columns are divided by blanks."""
    found = []
    header, *lines = text.strip().splitlines()
    columns = header.replace("wrong epoch", "wrong_epoch").replace("wrong id", "wrong_id").split()
    for line in lines:
        name, *expected = line.split()
        assert len(expected) == len(columns) - 1, line
        for column, word in zip(columns[1:], expected, strict=True):
            found.append((STATES[name], column, word))
    return found


def word(cell: Cell | Impossible) -> str:
    return f"->{cell.target.label}" if isinstance(cell, Move) else WORDS[cell]


def a_transaction(current: State, version: int = 2) -> TransactionMetadata:
    is_open = current in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
    return TransactionMetadata(
        producer_id=7,
        producer_epoch=5,
        last_producer_epoch=4,
        previous_producer_id=7,
        timeout_ms=60_000,
        state=current,
        partitions=frozenset({P0}) if is_open else frozenset(),
        transaction_version=version,
    )


def end(current: State, who: ProducerIdAndEpoch, version: int, *, committed: bool) -> str:
    transaction = a_transaction(current, version)
    event = end_event(transaction, who, version, committed=committed)
    return word(state.decide(transaction, event, version))


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(("current", "column", "expected"), cells(END_OLD))
def test_end_txn_up_to_version_4(current: State, column: str, expected: str, version: int) -> None:
    match column:
        case "commit" | "abort":
            assert end(current, CURRENT, version, committed=column == "commit") == expected
        case "wrong_epoch":
            for who in (LAST, OLDER, HIGHER):
                assert end(current, who, version, committed=True) == expected
                assert end(current, who, version, committed=False) == expected
        case "wrong_id":
            assert end(current, STRANGER, version, committed=True) == expected
            assert end(current, STRANGER, version, committed=False) == expected


@pytest.mark.parametrize(("current", "column", "expected"), cells(END_TV2))
def test_end_txn_version_5(current: State, column: str, expected: str) -> None:
    verb, which = column.split("_")
    who = {"retry": LAST, "current": CURRENT}[which]
    assert end(current, who, 2, committed=verb == "commit") == expected


@pytest.mark.parametrize("current", list(State)[:6])
@pytest.mark.parametrize("committed", [True, False])
def test_end_txn_version_5_from_nobody(current: State, committed: bool) -> None:
    waits = "wait" if current.is_prepared else None
    for who in (OLDER, HIGHER):
        assert end(current, who, 2, committed=committed) == (waits or "PRODUCER_FENCED")
    foreign = waits or "INVALID_PRODUCER_ID_MAPPING"
    assert end(current, STRANGER, 2, committed=committed) == foreign


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(("current", "column", "expected"), cells(INIT))
def test_init_producer_id(current: State, column: str, expected: str, version: int) -> None:
    who = {
        "nothing": None,
        "current": CURRENT,
        "last": LAST,
        "older": OLDER,
        "stranger": STRANGER,
    }[column]
    transaction = a_transaction(current)
    event = init_event(transaction, who)
    assert word(state.decide(transaction, event, version)) == expected


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(("current", "column", "expected"), cells(KEEP))
def test_init_producer_id_that_keeps_what_is_open(
    current: State, column: str, expected: str, version: int
) -> None:
    who = {"nothing": None, "current": CURRENT, "last": LAST, "older": OLDER, "stranger": STRANGER}
    transaction = a_transaction(current)
    event = init_event(transaction, who[column], keep=True)
    assert word(state.decide(transaction, event, version)) == expected


@pytest.mark.parametrize(
    ("request_name", "column", "expected"),
    [
        (line.split()[0], column, word)
        for line in KEPT.strip().splitlines()[1:]
        for column, word in zip(KEPT.split()[1:5], line.split()[1:], strict=True)
    ],
)
def test_a_kept_transaction_has_one_identity_for_its_producer_and_one_for_its_records(
    request_name: str, column: str, expected: str
) -> None:
    kept = replace(
        a_transaction(State.ONGOING),
        next_producer_id=9,
        next_producer_epoch=3,
        last_producer_epoch=2,
    )
    who = {
        "new-instance": producer(9, 3),
        "before": producer(9, 2),
        "records": producer(7, 5),
        "stranger": STRANGER,
    }[column]
    if request_name == "verify":
        assert state.verify(kept, who, P0) is ErrorCode[expected]
        return
    event = {
        "init": lambda: init_event(kept, who),
        "keep": lambda: init_event(kept, who, keep=True),
        "add": lambda: add_event(kept, who, frozenset({P0})),
        "commit": lambda: end_event(kept, who, 2, committed=True),
        "abort": lambda: end_event(kept, who, 2, committed=False),
        "disconnect": lambda: disconnect_event(kept, who),
    }[request_name]()
    assert word(state.decide(kept, event, 2)) == expected


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(("current", "column", "expected"), cells(ADD))
def test_add_partitions(current: State, column: str, expected: str, version: int) -> None:
    who, partitions = {
        "new": (CURRENT, {P0, P1}),
        "known": (CURRENT, {P0} if a_transaction(current).partitions else set()),
        "older": (LAST, {P0}),
        "higher": (HIGHER, {P0}),
        "stranger": (STRANGER, {P0}),
    }[column]
    transaction = a_transaction(current)
    event = add_event(transaction, who, frozenset(partitions))
    assert word(state.decide(transaction, event, version)) == expected


@pytest.mark.parametrize(("current", "column", "expected"), cells(VERIFY))
def test_verification(current: State, column: str, expected: str) -> None:
    who, partition = {
        "inside": (CURRENT, P0),
        "outside": (CURRENT, P1),
        "older": (LAST, P0),
        "stranger": (STRANGER, P0),
    }[column]
    assert state.verify(a_transaction(current), who, partition) is ErrorCode[expected]


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(("current", "column", "expected"), cells(INTERNAL))
def test_events_of_our_own(current: State, column: str, expected: str, version: int) -> None:
    assert word(TABLE[version][current, Event[column]]) == expected


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("event", Event)
def test_every_transition_is_legal(event: Event, version: int) -> None:
    legal = {
        STATES[target]: {STATES[name] for name in sources}
        for target, *sources in (line.split() for line in PREVIOUS_STATES.strip().splitlines())
    }
    for source in State:
        cell = TABLE[version][source, event]
        if isinstance(cell, Move):
            assert source in legal[cell.target], f"{event.name}: {source.label} {word(cell)}"


def test_every_legal_transition_is_used() -> None:
    used = {
        (source, cell.target)
        for table in TABLE.values()
        for (source, _), cell in table.items()
        if isinstance(cell, Move)
    }
    legal = {
        (STATES[source], STATES[target])
        for target, *sources in (line.split() for line in PREVIOUS_STATES.strip().splitlines())
        for source in sources
    }
    assert used == legal


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_nothing_happens_to_a_dead_id_or_one_about_to_be_fenced(event: Event, version: int) -> None:
    assert TABLE[version][State.DEAD, event] is NEVER
    if event is not Event.ABORT_FENCED:
        assert TABLE[version][State.PREPARE_EPOCH_FENCE, event] is NEVER


def test_who_commits_in_two_phases_may_be_away() -> None:
    timed = a_transaction(State.ONGOING)
    assert disconnect_event(timed, CURRENT) is Event.DISCONNECT
    assert disconnect_event(timed, LAST) is Event.DISCONNECT_STALE
    untimed = replace(timed, timeout_ms=NO_TIMEOUT_MS)
    assert disconnect_event(untimed, CURRENT) is Event.DISCONNECT_STALE


def test_what_cannot_happen_stops_the_broker() -> None:
    with pytest.raises(AssertionError, match="MARKED in CompleteCommit"):
        state.decide(a_transaction(State.COMPLETE_COMMIT), Event.MARKED, 2)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("current", [State.EMPTY, State.ONGOING, State.COMPLETE_COMMIT])
def test_a_pending_id_makes_all_wait_but_the_end_by_a_stranger(
    current: State, event: Event, version: int
) -> None:
    cell = TABLE[version][current, event]
    if cell is NEVER:
        return
    pending = state.decide(a_transaction(current), event, version, is_pending=True)
    is_end = event.name.startswith(("COMMIT", "ABORT", "END"))
    if version < 2 and is_end and cell in (Answer.FENCED, Answer.FOREIGN):
        assert pending is cell
    else:
        assert pending is Answer.BUSY


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("event", Event)
def test_a_move_leads_where_it_says(event: Event, version: int) -> None:
    for source in State:
        cell = TABLE[version][source, event]
        if not isinstance(cell, Move):
            continue
        before = a_transaction(source)
        request = StepRequest(
            event=event,
            now_ms=1,
            transaction_version=version,
            partitions=frozenset({P1}),
            timeout_ms=1000,
            cause=BumpCause.TIMEOUT,
        )
        after = state.step(before, cell, request)
        assert after.state is cell.target
        assert (after.producer_id, after.updated_ms) == (7, 1)
        assert after.producer_epoch in (5, 6)
