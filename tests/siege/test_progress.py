"""A siege in which a client does nothing has not passed."""

from tests.siege.progress import idle

BUSY = {"committed": {"java": 3, "copier-ours": 1}, "acknowledged": {"steady-ours": 3_000}}


def test_a_siege_in_which_every_client_worked_has_passed() -> None:
    assert list(idle(BUSY, minutes=3)) == []


def test_a_client_that_does_nothing_fails_the_siege() -> None:
    done = {**BUSY, "committed": {"java": 0, "copier-ours": 1}, "polled": {"reader": 0}}
    assert list(idle(done, minutes=3)) == [
        "java has done nothing of this while it was besieged: committed",
        "reader has done nothing of this while it was besieged: polled",
    ]


def test_a_siege_of_few_records_fails() -> None:
    (sentence,) = idle(BUSY, minutes=10)
    assert sentence == "only 3,000 records were acknowledged in 10 minutes, not 10,000"


def test_the_members_of_a_group_are_judged_together_in_a_short_siege() -> None:
    members = {"group-classic-ours": 0, "group-classic-java": 2, "group-plain-a": 0, "java": 1}
    done = {**BUSY, "committed": members}
    assert list(idle(done, minutes=1)) == [
        "group-plain has done nothing of this while it was besieged: committed"
    ]
    assert list(idle(done, minutes=3)) == [
        f"{member} has done nothing of this while it was besieged: committed"
        for member in ("group-classic-ours", "group-plain-a")
    ]
