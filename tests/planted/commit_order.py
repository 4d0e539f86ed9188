"""Bugs of reading in commit order: what a restart or a damaged file would lose or repeat."""

from typing import Final

from tests.planted.bug import Planted

TESTS: Final = "tests/client/consuming/test_commit_order.py::test_"

COMMIT_ORDER_BUGS: Final = (
    Planted(
        bug="a restart in commit order repeats what was delivered",
        where="Arrangement.__init__",
        old="self._from = progress.reached",
        new="self._from = progress.start",
        tests=(f"{TESTS}a_restart_repeats_nothing_and_loses_nothing",),
    ),
    Planted(
        bug="the rest of a transaction is lost in a restart in commit order",
        where="Arrangement.progress",
        old="if ended.marker_offset == reached:",
        new="if False:",
        tests=(
            f"{TESTS}a_restart_inside_a_transaction_returns_the_rest_of_it",
            f"{TESTS}each_record_is_returned_once_over_restarts_at_any_point",
        ),
    ),
    Planted(
        bug="a transaction of which nothing is left holds the stored offset back",
        where="Arrangement._note_arrived_at",
        old="if self._sought and offset >= self._from:",
        new="if False:",
        tests=(
            f"{TESTS}a_transaction_of_which_nothing_is_left_does_not_hold_the_stored_offset_back",
        ),
    ),
    Planted(
        bug="a pending transaction is forgotten before its records are read again",
        where="Arrangement._note_arrived_at",
        old="if self._sought and offset >= self._from:",
        new="if self._sought:",
        tests=(f"{TESTS}a_pending_transaction_is_not_forgotten_before_its_place_is_read",),
    ),
    Planted(
        bug="a damaged file of open transactions is read as it is",
        where="Spool.read",
        old="crc32c(found) != piece.checksum",
        new="False",
        tests=(f"{TESTS}a_damaged_file_is_an_error_and_nothing_is_lost[changed]",),
    ),
    Planted(
        bug="a batch that a flipped bit makes a marker is skipped in commit order",
        where="Arrangement.arrange",
        old="check_left_out(header, data)",
        tests=(f"{TESTS}a_damaged_batch_is_neither_kept_nor_taken_for_a_marker",),
    ),
    Planted(
        bug="a batch that a flipped bit makes a marker is skipped without a look at its CRC",
        where="check_left_out",
        old="if not crc_is_good(data, header):",
        new="if False:",
        tests=(
            "tests/client/consuming/test_fetched.py::"
            "test_a_batch_that_only_seems_to_be_left_out_is_refused",
        ),
    ),
)
