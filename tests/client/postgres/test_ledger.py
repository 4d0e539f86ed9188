"""A short run of `scripts/ledger`, and that its judge sees what is wrong."""

from collections.abc import Iterator

import pytest

from odradek.broker.testing import run_broker
from odradek.client.postgres import Step
from scripts.ledgers.__main__ import PROGRAM, SERVERS, at_a_step, at_random
from scripts.ledgers.sides import SETTINGS, Ledger, Unlike, run_to_the_end
from tests.peers.postgres import run_postgres


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with run_postgres() as postgres, run_broker(config=SETTINGS) as broker:
        yield Ledger(broker, postgres)


@pytest.mark.slow
@pytest.mark.parametrize(
    "killed",
    [
        pytest.param((PROGRAM,), marks=pytest.mark.minutes),
        pytest.param(SERVERS, marks=pytest.mark.minutes),
        (PROGRAM, *SERVERS),
    ],
)
def test_sums_and_records_agree_after_kill_9_at_a_step(
    ledger: Ledger, killed: tuple[str, ...]
) -> None:
    for step in (Step.PRODUCER_ENTERED, Step.STORED, Step.DECIDED):
        at_a_step(ledger, step, killed, f"a test, {step}")


@pytest.mark.slow
def test_sums_and_records_agree_after_kill_9_at_random(ledger: Ledger) -> None:
    at_random(ledger, kills=8, seed=7)


def test_the_judge_sees_what_only_one_side_has(ledger: Ledger) -> None:
    run_to_the_end(ledger, "first", 3, "a test")
    ledger.judge()
    assert ledger.counts["moves on both sides"] == 3
    (name, word), *_ = ledger.told.items()
    assert word == "done"
    for change, back, seen in (
        ("INSERT INTO moves VALUES ('x')", "DELETE FROM moves WHERE name = 'x'", "only in Postg"),
        (f"DELETE FROM moves WHERE name = '{name}'", f"INSERT INTO moves VALUES ('{name}')", "to"),
        (
            "UPDATE accounts SET balance = balance + 1 WHERE name = 'ada'",
            "UPDATE accounts SET balance = balance - 1 WHERE name = 'ada'",
            "the sum",
        ),
        (
            "UPDATE accounts SET balance = balance + CASE name WHEN 'ada' THEN 1 ELSE -1 END "
            "WHERE name IN ('ada', 'bob')",
            "UPDATE accounts SET balance = balance - CASE name WHEN 'ada' THEN 1 ELSE -1 END "
            "WHERE name IN ('ada', 'bob')",
            "the records give",
        ),
    ):
        ledger.postgres.ask(change)
        with pytest.raises(Unlike, match=seen):
            ledger.judge()
        ledger.postgres.ask(back)
        ledger.judge()
    for told in ({name: "aborted"}, {"never": "done"}, {"never": "decided"}):
        ledger.told.update(told)
        with pytest.raises(Unlike, match="was "):
            ledger.judge()
        ledger.told = {name: "done"}
