"""The checker finds every anomaly planted in a valid history, and nothing in a valid one."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.checker.check import check
from tests.checker.history import Found, History, Outcome, Partition, Poll, Transaction

SEEDS = range(20)
PARTITIONS: list[Partition] = [("a", 0), ("a", 1), ("b", 0)]
GROUP = ("copying", ("b", 0))
Mutation = Callable[[History, random.Random], History]


def valid_history(rng: random.Random) -> History:
    """What an ideal broker shows of transactions of two processes that interleave.

    A third process reads everything and copies partition b-0 in transactions of its own.
    """
    transactions = []
    log: dict[Partition, list[tuple[int, bytes]]] = {partition: [] for partition in PARTITIONS}
    stored: dict[str, int | None] = {"x": None, "y": None}
    polls: list[Poll] = []
    for number in range(40):
        process = rng.choice(["x", "y"])
        outcome = list(Outcome)[number % 3]
        sends = [
            (partition, f"{process}-{number}-{index}".encode())
            for index, partition in enumerate([*PARTITIONS, rng.choice(PARTITIONS)])
        ]
        added: dict[Partition, list[Found]] = {}
        acknowledged: dict[bytes, int] = {}
        if outcome is Outcome.OK or (outcome is Outcome.INFO and rng.random() < 0.5):
            stored[process] = number
            for partition, value in sends:
                records = log[partition]
                gap = rng.choice([1, 1, 2])  # a marker takes an offset, too
                found = (records[-1][0] + gap if records else 0, value)
                records.append(found)
                added.setdefault(partition, []).append(found)
                acknowledged[value] = found[0]
        transactions.append(
            Transaction(
                process=process,
                outcome=outcome,
                sends=sends,
                stores=number,
                acknowledged=acknowledged,
                started=number,
                commit_asked=number + 0.5,
            )
        )
        if added:
            continues = rng.random() < 0.9
            polls.append(Poll(process="z", records=added, ended=number + 0.9, continues=continues))
    return History(
        transactions=[*transactions, *copies(rng, log)],
        log=log,
        stored_offsets=stored,
        polls=polls,
        group_offsets={GROUP: log["b", 0][-1][0] + 1},
    )


def copies(rng: random.Random, log: dict[Partition, list[Found]]) -> list[Transaction]:
    """Copy partition b-0 to c-0 in several transactions, one of them without an answer."""
    made, copied = [], log.setdefault(("c", 0), [])
    source = log["b", 0]
    at = 0
    for number, start in enumerate(range(0, len(source), 3)):
        some = source[start : start + 3]
        to = some[-1][0] + 1
        sends = [(("c", 0), b"copy of " + value) for _, value in some]
        for _, value in sends:
            copied.append((len(copied), value))
        made.append(
            Transaction(
                process="copier",
                outcome=Outcome.INFO if number == 2 else Outcome.OK,
                sends=sends,
                takes={GROUP: (at, to)},
                polled={("b", 0): some},
            )
        )
        at = to
    return made


@pytest.mark.parametrize("seed", SEEDS)
def test_a_valid_history_has_no_anomaly(seed: int) -> None:
    assert check(valid_history(random.Random(seed))) == []


def with_log(history: History, partition: Partition, records: list[tuple[int, bytes]]) -> History:
    return replace(history, log={**history.log, partition: records})


def lose_a_committed_value(history: History, rng: random.Random) -> History:
    committed = [t for t in history.transactions if t.outcome is Outcome.OK]
    partition, lost = rng.choice(rng.choice(committed).sends)
    return with_log(history, partition, [r for r in history.log[partition] if r[1] != lost])


def show_an_aborted_value(history: History, rng: random.Random) -> History:
    aborted = [t for t in history.transactions if t.outcome is Outcome.FAIL]
    partition, value = rng.choice(rng.choice(aborted).sends)
    records = list(history.log[partition])
    return with_log(history, partition, [*records, (records[-1][0] + 1, value)])


def tear_an_uncertain_transaction(history: History, rng: random.Random) -> History:
    shown = {value for records in history.log.values() for _, value in records}
    hidden = [
        t
        for t in history.transactions
        if t.outcome is Outcome.INFO and all(value not in shown for _, value in t.sends)
    ]
    partition, value = rng.choice(rng.choice(hidden).sends)
    records = list(history.log[partition])
    return with_log(history, partition, [*records, (records[-1][0] + 1, value)])


def double_a_value(history: History, rng: random.Random) -> History:
    partition = rng.choice(PARTITIONS)
    records = list(history.log[partition])
    return with_log(history, partition, [*records, (records[-1][0] + 1, rng.choice(records)[1])])


def invent_a_value(history: History, rng: random.Random) -> History:
    partition = rng.choice(PARTITIONS)
    records = list(history.log[partition])
    return with_log(history, partition, [*records, (records[-1][0] + 1, b"nobody's")])


def misroute_a_value(history: History, rng: random.Random) -> History:
    value = rng.choice(history.log["a", 0])[1]
    without = [record for record in history.log["a", 0] if record[1] != value]
    records = list(history.log["b", 0])
    moved = with_log(history, ("a", 0), without)
    return with_log(moved, ("b", 0), [*records, (records[-1][0] + 1, value)])


def swap_two_values_of_a_process(history: History, rng: random.Random) -> History:
    partition = rng.choice(PARTITIONS)
    records = list(history.log[partition])
    mine = {
        value.split(b"-")[1]: place
        for place, (_, value) in enumerate(records)
        if value.startswith(b"x")
    }
    first, second = rng.sample([*mine.values()], 2)  # of two transactions
    (offset_1, value_1), (offset_2, value_2) = records[first], records[second]
    records[first], records[second] = (offset_1, value_2), (offset_2, value_1)
    return with_log(history, partition, records)


def repeat_an_offset(history: History, rng: random.Random) -> History:
    partition = rng.choice(PARTITIONS)
    records = list(history.log[partition])
    place = rng.randrange(1, len(records))
    records[place] = (records[place - 1][0], records[place][1])
    return with_log(history, partition, records)


def store_the_offset_of_an_aborted_transaction(history: History, rng: random.Random) -> History:
    aborted = [t for t in history.transactions if t.outcome is Outcome.FAIL]
    transaction = rng.choice(aborted)
    return replace(
        history, stored_offsets={**history.stored_offsets, transaction.process: transaction.stores}
    )


def forget_the_stored_offset(history: History, rng: random.Random) -> History:
    return replace(history, stored_offsets={**history.stored_offsets, rng.choice("xy"): None})


def with_polls(history: History, *polls: Poll) -> History:
    return replace(history, polls=[*history.polls, *polls])


def sent(history: History, outcome: Outcome, rng: random.Random) -> tuple[Partition, bytes]:
    return rng.choice(rng.choice([t for t in history.transactions if t.outcome is outcome]).sends)


def change(history: History, number: int, **what: Any) -> History:
    transactions = list(history.transactions)
    transactions[number] = replace(transactions[number], **what)
    return replace(history, transactions=transactions)


def copy_numbers(history: History) -> list[int]:
    return [n for n, each in enumerate(history.transactions) if each.takes]


def acknowledge_another_offset(history: History, rng: random.Random) -> History:
    numbers = [
        n for n, t in enumerate(history.transactions) if t.acknowledged and t.outcome.name == "OK"
    ]
    number = rng.choice(numbers)
    transaction = history.transactions[number]
    partition, value = transaction.sends[0]
    others = [offset for offset, found in history.log[partition] if found != value]
    return change(
        history, number, acknowledged={**transaction.acknowledged, value: rng.choice(others)}
    )


def acknowledge_another_offset_of_an_uncertain_transaction(
    history: History, rng: random.Random
) -> History:
    """It took effect, as its values show."""
    shown = {value for records in history.log.values() for _, value in records}
    numbers = [
        n
        for n, t in enumerate(history.transactions)
        if t.outcome is Outcome.INFO and t.acknowledged and t.sends[0][1] in shown
    ]
    number = rng.choice(numbers)
    transaction = history.transactions[number]
    partition, value = transaction.sends[0]
    others = [offset for offset, found in history.log[partition] if found != value]
    return change(
        history, number, acknowledged={**transaction.acknowledged, value: rng.choice(others)}
    )


def poll_a_value_at_another_offset(history: History, rng: random.Random) -> History:
    partition = rng.choice(PARTITIONS)
    _, value = rng.choice(history.log[partition])
    return with_polls(history, Poll(process="w", records={partition: [(10_000, value)]}))


def copy_a_value_before_its_commit(history: History, rng: random.Random) -> History:
    number = rng.choice(copy_numbers(history))
    (_, value), *_ = history.transactions[number].polled["b", 0]
    sender = next(t for t in history.transactions if (("b", 0), value) in t.sends)
    return change(history, number, commit_asked=sender.commit_asked - 0.1)


def swap_two_values_of_a_transaction(history: History, rng: random.Random) -> History:
    pairs = [
        (t.sends[-1][0], [value for at, value in t.sends if at == t.sends[-1][0]])
        for t in history.transactions
        if t.outcome is Outcome.OK and not t.takes
    ]
    partition, (first, second) = rng.choice([pair for pair in pairs if len(pair[1]) == 2])
    other = {first: second, second: first}
    records = [(offset, other.get(value, value)) for offset, value in history.log[partition]]
    return with_log(history, partition, records)


def poll_another_value(history: History, rng: random.Random) -> History:
    (offset, _), (_, value) = rng.sample(list(history.log["a", 0]), 2)
    return with_polls(history, Poll(process="w", records={("a", 0): [(offset, value)]}))


def poll_an_aborted_value(history: History, rng: random.Random) -> History:
    partition, value = sent(history, Outcome.FAIL, rng)
    return with_polls(history, Poll(process="w", records={partition: [(10_000, value)]}))


def poll_an_invented_value(history: History, rng: random.Random) -> History:
    partition = rng.choice(PARTITIONS)
    return with_polls(history, Poll(process="w", records={partition: [(10_000, b"nobody's")]}))


def poll_before_the_commit(history: History, rng: random.Random) -> History:
    index = rng.randrange(len(history.polls))
    polls = list(history.polls)
    polls[index] = replace(polls[index], ended=polls[index].ended - 0.5)
    return replace(history, polls=polls)


def poll_before_the_start(history: History, rng: random.Random) -> History:
    index = rng.randrange(len(history.polls))
    polls = list(history.polls)
    polls[index] = replace(polls[index], ended=polls[index].ended - 1)
    return replace(history, polls=polls)


def poll_its_own_value(history: History, rng: random.Random) -> History:
    number = rng.choice(copy_numbers(history))
    value = history.transactions[number].sends[0][1]
    return change(history, number, polled={("c", 0): [(10_000, value)]})


def forget_a_value_that_was_polled(history: History, rng: random.Random) -> History:
    infos = {v for t in history.transactions if t.outcome is Outcome.INFO for _, v in t.sends}
    shown = [record for record in history.log["a", 0] if record[1] in infos]
    lost = rng.choice(shown)
    return with_log(history, ("a", 0), [r for r in history.log["a", 0] if r != lost])


def skip_inside_a_poll(history: History, rng: random.Random) -> History:
    first, _, third = list(history.log["a", 0])[3:6]
    return with_polls(history, Poll(process="w", records={("a", 0): [first, third]}))


def go_back_inside_a_poll(history: History, rng: random.Random) -> History:
    first, second = rng.sample(list(history.log["a", 0]), 2)
    return with_polls(
        history,
        Poll(process="w", records={("a", 0): sorted((first, second), reverse=True)}),
    )


def skip_between_polls(history: History, rng: random.Random) -> History:
    first, _, third = list(history.log["a", 0])[3:6]
    return with_polls(
        history,
        Poll(process="w", records={("a", 0): [first]}, continues=False),
        Poll(process="w", records={("a", 0): [third]}),
    )


def go_back_between_polls(history: History, rng: random.Random) -> History:
    first, second = sorted(rng.sample(list(history.log["a", 0]), 2))
    return with_polls(
        history,
        Poll(process="w", records={("a", 0): [second]}, continues=False),
        Poll(process="w", records={("a", 0): [first]}),
    )


def read_each_other(history: History, rng: random.Random) -> History:
    """A copy has read what an earlier transaction of its own process has read from."""
    first, second = copy_numbers(history)[:2]
    value = history.transactions[second].sends[0][1]
    return change(history, first, polled={("c", 0): [(10_000, value)]})


def process_twice(history: History, rng: random.Random) -> History:
    number = rng.choice(copy_numbers(history)[1:])
    first, to = history.transactions[number].takes[GROUP]
    return change(history, number, takes={GROUP: (first - 1, to)})


def skip_input(history: History, rng: random.Random) -> History:
    number = rng.choice(copy_numbers(history))
    _, to = history.transactions[number].takes[GROUP]
    return change(history, number, takes={GROUP: (to, to)})


def keep_an_old_position(history: History, rng: random.Random) -> History:
    return replace(history, group_offsets={GROUP: rng.randrange(1, 5)})


MUTATIONS: dict[Mutation, str] = {
    lose_a_committed_value: "lost-write",
    show_an_aborted_value: "aborted-read",
    tear_an_uncertain_transaction: "torn-transaction",
    double_a_value: "duplicate",
    invent_a_value: "phantom",
    misroute_a_value: "phantom",
    swap_two_values_of_a_process: "nonmonotonic-send",
    repeat_an_offset: "nonmonotonic-poll",
    store_the_offset_of_an_aborted_transaction: "offset-commit-not-atomic",
    forget_the_stored_offset: "offset-commit-not-atomic",
    acknowledge_another_offset: "inconsistent-offsets",
    acknowledge_another_offset_of_an_uncertain_transaction: "inconsistent-offsets",
    poll_a_value_at_another_offset: "duplicate",
    copy_a_value_before_its_commit: "uncommitted-read",
    swap_two_values_of_a_transaction: "int-nonmonotonic-send",
    poll_another_value: "inconsistent-offsets",
    poll_an_aborted_value: "aborted-read",
    poll_an_invented_value: "phantom",
    poll_before_the_commit: "uncommitted-read",
    poll_before_the_start: "read-from-future",
    poll_its_own_value: "precommitted-read",
    forget_a_value_that_was_polled: "unrepeatable-read",
    skip_inside_a_poll: "int-poll-skip",
    go_back_inside_a_poll: "int-nonmonotonic-poll",
    skip_between_polls: "poll-skip",
    go_back_between_polls: "nonmonotonic-poll",
    read_each_other: "cycle",
    process_twice: "double-processing",
    skip_input: "skipped-input",
    keep_an_old_position: "offset-commit-not-atomic",
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_planted_anomaly_is_found(mutation: Mutation, seed: int) -> None:
    rng = random.Random(seed)
    planted = mutation(valid_history(rng), rng)

    assert MUTATIONS[mutation] in {anomaly.kind for anomaly in check(planted)}
