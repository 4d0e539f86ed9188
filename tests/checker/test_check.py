"""The checker finds every anomaly planted in a valid history, and nothing in a valid one."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.checker.check import check
from tests.checker.history import History, Outcome, Partition, Transaction

SEEDS = range(20)
PARTITIONS: list[Partition] = [("a", 0), ("a", 1), ("b", 0)]
Mutation = Callable[[History, random.Random], History]


def valid_history(rng: random.Random) -> History:
    """What an ideal broker shows of transactions of two processes that interleave."""
    transactions = []
    log: dict[Partition, list[tuple[int, bytes]]] = {partition: [] for partition in PARTITIONS}
    stored: dict[str, int | None] = {"x": None, "y": None}
    for number in range(40):
        process = rng.choice(["x", "y"])
        outcome = list(Outcome)[number % 3]
        sends = [
            (partition, f"{process}-{number}-{index}".encode())
            for index, partition in enumerate([*PARTITIONS, rng.choice(PARTITIONS)])
        ]
        transactions.append(
            Transaction(process=process, outcome=outcome, sends=sends, stores=number)
        )
        if outcome is Outcome.OK or (outcome is Outcome.INFO and rng.random() < 0.5):
            stored[process] = number
            for partition, value in sends:
                records = log[partition]
                gap = rng.choice([1, 1, 2])  # a marker takes an offset, too
                records.append((records[-1][0] + gap if records else 0, value))
    return History(transactions=transactions, log=log, stored_offsets=stored)


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
    mine = [i for i, (_, value) in enumerate(records) if value.startswith(b"x")]
    first, second = rng.sample(mine, 2)
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
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_planted_anomaly_is_found(mutation: Mutation, seed: int) -> None:
    rng = random.Random(seed)
    planted = mutation(valid_history(rng), rng)

    assert MUTATIONS[mutation] in {anomaly.kind for anomaly in check(planted)}
