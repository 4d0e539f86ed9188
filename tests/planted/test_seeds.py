"""A seed that does not find its bug any more is replaced by another one."""

from math import inf
from pathlib import Path

from tests.planted.bug import Planted
from tests.planted.seeds import find_seed, write_seed

NOTHING = dict[int, str]()
FOUND = {3: "VIOLATED", 5: "VIOLATED"}
TABLE = """\
BUGS = (
    Planted(bug="a bug", where="decide", old="if fenced:", new="if False:", tests=(), seed=8),
    Planted(
        bug="a bug",
        where="decide",
        old="if late:",
        tests=(f"{THERE}a_name",),
        seed=8,  # found it once
        fixed=KILLS,
    ),
    Planted(bug="a bug that no seed finds", where="decide", old="late", tests=()),
)
"""


def test_the_first_seed_that_finds_a_bug_is_taken() -> None:
    found = find_seed(range(1, 9), inf, FOUND.get, NOTHING.get)
    assert (found.seed, found.violation, found.tried, found.failures) == (3, "VIOLATED", 3, [])


def test_a_seed_that_fails_without_the_bug_is_a_failure_and_another_one_is_taken() -> None:
    failing = {3: "it fails"}
    found = find_seed(range(1, 9), inf, FOUND.get, failing.get)
    assert (found.seed, found.failures) == (5, ["it fails"])


def test_a_search_ends_with_its_seeds_or_its_time() -> None:
    assert find_seed(range(1, 9), inf, NOTHING.get, NOTHING.get).tried == 8
    assert find_seed(range(1, 9), 0, NOTHING.get, NOTHING.get).tried == 0
    assert find_seed(range(1, 9), 0, NOTHING.get, NOTHING.get).seed is None


def test_a_new_seed_is_written_where_the_old_one_was(tmp_path: Path) -> None:
    table = tmp_path / "table.py"
    table.write_text(TABLE)
    planted = Planted(bug="a bug", where="decide", old="if late:", tests=(), seed=8)
    assert write_seed(planted, 17, tmp_path) == table
    assert table.read_text() == TABLE.replace("seed=8,  #", "seed=17,  #")
