"""The sentences about records that wait: as much as is known, in the order of a reader."""

from dataclasses import replace

import pytest

from odradek.client import Pin, Refused, TopicPartition
from odradek.client.administration.pin_words import end_line, held_back, pin_line

PLACE = TopicPartition("refunds", 0)
HERE = "127.0.0.1:9092"
PIN = Pin(
    partition=PLACE,
    producer_id=7,
    producer_epoch=1,
    start_offset=4,
    end_offset=17,
    records_behind=13,
    transactional_id="refunds-5",
    state="Ongoing",
    client_id="worker-5",
    client_host="10.0.0.7",
    age_ms=20_000,
    remaining_ms=40_000,
    timeout_ms=60_000,
)
HOW = "`odradek txn who-pins refunds`"


def said(*pins: Pin, bootstrap: str = HERE) -> list[str]:
    waiting = {pin.partition: pin.records_behind for pin in pins}
    return held_back(waiting, {pin.partition: pin for pin in pins}, bootstrap)


@pytest.mark.parametrize(
    ("pin", "behind"),
    [
        (
            PIN,
            "the transaction of 'refunds-5' (worker-5 at 10.0.0.7), open for 20 s, aborted in 40 s "
            "at the latest",
        ),
        (
            replace(PIN, client_id=None, client_host=None),
            "the transaction of 'refunds-5', open for 20 s, aborted in 40 s at the latest",
        ),
        (
            replace(PIN, remaining_ms=None),  # of two phases
            "the transaction of 'refunds-5' (worker-5 at 10.0.0.7), open for 20 s, it does not "
            "time out",
        ),
        (
            replace(PIN, remaining_ms=-3_000),
            "the transaction of 'refunds-5' (worker-5 at 10.0.0.7), open for 20 s, its time-out is "
            "overdue by 3.0 s",
        ),
        (
            replace(PIN, state="PrepareCommit", remaining_ms=None),
            "the transaction of 'refunds-5' (worker-5 at 10.0.0.7), open for 20 s, it is decided: "
            "its commit marker is to be written",
        ),
        (
            replace(PIN, state=None, age_ms=None, is_hanging=True),
            "the transaction of 'refunds-5' (worker-5 at 10.0.0.7), no coordinator will end it "
            "(see `odradek txn hanging`)",
        ),
        (  # DescribeTransactions is refused
            replace(PIN, state=None, age_ms=None, client_id=None, client_host=None),
            "the transaction of 'refunds-5'",
        ),
        (  # ListTransactions leaves out what the client may not describe
            replace(PIN, transactional_id=None, state=None, age_ms=None),
            "a transaction of producer id 7 (epoch 1), its transactional id is not shown to this "
            "client",
        ),
    ],
)
def test_what_is_known_is_said_and_the_rest_left_out(pin: Pin, behind: str) -> None:
    assert said(pin) == [f"13 records of refunds-0 wait behind {behind}; {HOW}"]


def test_one_transaction_is_one_sentence_however_many_partitions_it_pins() -> None:
    pins = [
        replace(PIN, partition=TopicPartition("refunds", index), records_behind=1)
        for index in range(20)
    ]
    other = replace(PIN, partition=TopicPartition("a topic", 0), producer_id=8, records_behind=1)
    first, second = said(*pins, other)
    assert first.startswith("20 records of refunds-0, refunds-1, ")
    assert " and 12 more wait behind the transaction of 'refunds-5' (" in first
    assert second.startswith("1 record of a topic-0 waits behind ")
    assert second.endswith("`odradek txn who-pins 'a topic'`")


def test_the_command_works_as_it_is_printed() -> None:
    (line,) = said(PIN, bootstrap="10.0.0.1:9092")
    assert line.endswith("; `odradek txn who-pins refunds --bootstrap 10.0.0.1:9092`")


def test_a_pin_that_may_not_be_described_leaves_the_number_of_records() -> None:
    error = Refused("not authorised")
    assert held_back({PLACE: 13}, {PLACE: error}, HERE) == [
        f"13 records of refunds-0 wait behind an open transaction; {HOW}"
    ]


def test_a_transaction_that_has_ended_meanwhile_is_no_sentence() -> None:
    assert held_back({PLACE: 13}, {PLACE: None}, HERE) == []


def test_the_line_of_who_pins_has_the_numbers() -> None:
    assert pin_line(PIN) == (
        "refunds-0: 'refunds-5' (worker-5 at 10.0.0.7), producer id 7, epoch 1, open for 20 s, "
        "aborted in 40 s at the latest; 13 records from offset 4 on wait"
    )


def test_who_may_end_a_transaction_of_two_phases_is_said_with_the_command() -> None:
    """The command alone looked like the way out, and it may undo what a database has committed."""
    endless = replace(PIN, remaining_ms=None)
    line = end_line(endless, HERE)
    assert line is not None
    assert "Its program, started again, ends it as another system has decided." in line
    assert "`odradek txn abort -- refunds-5` aborts it, whatever was decided." in line
    assert end_line(PIN, HERE) == "`odradek txn abort -- refunds-5` ends it."
    assert end_line(replace(endless, state="PrepareCommit"), HERE) is None
