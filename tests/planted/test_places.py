"""A planted bug is found by its syntax tree, and changes nothing but its own place."""

import textwrap
from pathlib import Path

import pytest

from tests.planted.source import Source, Stale

STORE = '''
"""A store."""

LIMIT: Final = 5


class Store:
    def put(self, key, *values):
        if (
            key in self._known  # a comment: it stays
            and self._is_open
        ):
            return None
        elif not values:
            raise KeyError("it's empty")
        with self.lock as held:
            self._values[key] = tuple(values)
            self.note(key, is_new=True, size=len(values))
        return [key, held]

    async def flush(self):
        try:
            await self.file.sync()
        except (OSError, ValueError) as error:
            self.note(error)


def note(key): ...
'''


@pytest.fixture
def product(tmp_path: Path) -> Path:
    for folder in ("broker/storage", "client", "protocol"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "broker/storage/store.py").write_text(STORE)
    return tmp_path


@pytest.mark.parametrize(
    ("where", "old", "new", "line", "planted"),
    [
        ("LIMIT", "5", "7", "LIMIT: Final = 5", "LIMIT: Final = 7"),
        ("store", "LIMIT: Final = 5", "", "LIMIT: Final = 5", "pass"),
        (
            "Store.put",
            "raise KeyError('it\\'s empty')",
            "",
            'raise KeyError("it\'s empty")',
            "pass",
        ),
        ("put", "elif not values:", "if False:", "elif not values:", "elif False:"),
        ("put", "with self.lock as held:", "if True:", "with self.lock as held:", "if True:"),
        ("Store.put", "self._is_open", "a or b", "and self._is_open", "and (a or b)"),
        ("Store.put", "is_new=True", "is_new=False", "is_new=True", "is_new=False"),
        ("Store.put", "is_new=True", "", "is_new=True, size", " size"),
        ("Store.put", "size=len(values)", "", "size=len(values)", ""),
        ("Store.put", "[key, held]", "[key]", "[key, held]", "[key]"),
        ("Store.flush", "await self.file.sync()", "", "await self.file.sync()", "pass"),
        (
            "storage.store.Store.flush",
            "except (OSError, ValueError) as error:",
            "except OSError as error:",
            "except (OSError, ValueError) as error:",
            "except OSError as error:",
        ),
        (
            "Store.put",
            "self.note(key, is_new=True, size=len(values))",
            "for each in values:\n    self.note(each)",
            "self.note(key, is_new=True, size=len(values))",
            "for each in values:\n                self.note(each)",
        ),
    ],
)
def test_a_place_is_replaced_and_all_the_rest_stays(
    product: Path, where: str, old: str, new: str, line: str, planted: str
) -> None:
    assert STORE.count(line) == 1
    place = Source(product).place(where, old, new)
    assert place.replaced_by(new).decode() == STORE.replace(line, planted)
    assert place.line == STORE[: STORE.index(line)].count("\n") + 1


def test_a_header_is_found_however_it_is_broken_into_lines(product: Path) -> None:
    place = Source(product).place("put", "if key in self._known and self._is_open:", "if False:")
    planted = place.replaced_by("if False:").decode()
    assert "        if False:\n            return None\n        elif" in planted


def test_statements_in_a_row_are_replaced_together(product: Path) -> None:
    old = "self._values[key] = tuple(values)\nself.note(key, is_new=True, size=len(values))"
    planted = Source(product).place("put", old, "").replaced_by("").decode()
    assert "        with self.lock as held:\n            pass\n        return" in planted


@pytest.mark.parametrize(
    ("where", "old", "new", "said"),
    [
        ("Stores.put", "LIMIT", "", "nothing is named Stores.put"),
        ("Store.put", "return 5", "", "Store.put has no statement"),
        ("Store.put", "values", "key", r"3 times \(broker/storage/store.py:14, "),
        ("Store.put", "if not values", "", "no Python"),
        ("Store.put", "elif not values:", "", "another header"),
    ],
)
def test_a_place_that_is_not_there_once_is_a_mistake_of_the_table(
    product: Path, where: str, old: str, new: str, said: str
) -> None:
    with pytest.raises(Stale, match=said):
        Source(product).place(where, old, new)


def test_a_move_of_a_module_changes_nothing(product: Path) -> None:
    (product / "broker/storage/store.py").rename(product / "client/kept.py")
    place = Source(product).place("Store.put", "self._is_open", "True")
    assert place.module.path == Path("client/kept.py")


def test_what_two_modules_have_is_told_apart_by_the_module(product: Path) -> None:
    (product / "client/store.py").write_text(textwrap.dedent(STORE))
    with pytest.raises(Stale, match="2 times"):
        Source(product).place("LIMIT", "5", "7")
    place = Source(product).place("client.store.LIMIT", "5", "7")
    assert place.module.path == Path("client/store.py")
