"""Bugs in what is said about transactions that hold readers back."""

from typing import Final

from tests.planted.bug import Planted

PINS: Final = "tests/client/administration/test_pins.py::test_"
WATCH: Final = "tests/client/consuming/test_pin_watch.py::test_"

PIN_BUGS: Final = (
    Planted(
        bug="a transaction that ends between two requests is said to hang",
        where="pins.find_pins",
        old="await _leave_out_ended(cluster, pins)",
        tests=(f"{PINS}a_transaction_that_ends_between_two_requests_is_not_said_to_hang",),
    ),
    Planted(
        bug="a consumer asks about every transaction that it stands before",
        where="PinWatch.look",
        old="if due and now >= self._not_before:",
        new="if due:",
        tests=(f"{WATCH}each_transaction_is_named_but_not_one_a_minute_for_ever",),
    ),
)
