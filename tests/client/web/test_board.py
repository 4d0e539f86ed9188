"""The rows of the page: what a browser is sent that has seen some of them."""

from odradek.client.web import board as boards
from odradek.client.web.board import Board


def test_a_new_reader_gets_everything_and_then_only_changes() -> None:
    board = Board()
    board.put("lane", "a", 1)
    board.put("lane", "b", 2)
    first = board.changes(0)
    assert (first.is_whole, first.rows) == (True, [("lane", "a", 1), ("lane", "b", 2)])
    board.put("lane", "a", 3)
    later = board.changes(first.number)
    assert (later.is_whole, later.rows) == (False, [("lane", "a", 3)])


def test_the_same_value_again_is_no_change() -> None:
    board = Board()
    board.put("lane", "a", {"x": [1]})
    number = board.number
    board.put("lane", "a", {"x": [1]})
    assert board.changes(number).rows == []


def test_a_row_that_goes_is_sent_without_a_value_and_may_come_back() -> None:
    board = Board()
    board.replace("pin", {"t-0": 1, "t-1": 2})
    number = board.number
    board.replace("pin", {"t-1": 2})
    assert board.changes(number).rows == [("pin", "t-0", None)]
    board.put("pin", "t-0", 5)
    assert board.changes(number).rows == [("pin", "t-0", 5)]
    board.remove("pin", "t-9")
    assert board.changes(board.number).rows == []


def test_other_sections_stay_when_one_is_replaced() -> None:
    board = Board()
    board.put("lane", "a", 1)
    board.replace("pin", {})
    assert board.changes(0).rows == [("lane", "a", 1)]


def test_a_reader_that_was_away_for_too_long_gets_everything_anew() -> None:
    board = Board()
    board.put("lane", "stays", 1)
    seen = board.number
    for number in range(boards.GONE_MAX + 1):
        board.put("span", str(number), number)
        board.remove("span", str(number))
    changes = board.changes(seen)
    assert (changes.is_whole, changes.rows) == (True, [("lane", "stays", 1)])
    assert not board.changes(changes.number - 1).is_whole
