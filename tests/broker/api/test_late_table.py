"""The index of the APIs agrees with the declarations, and modules are imported when needed."""

import errno
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Final, NoReturn

import pytest
import trio
import trio.testing

from odradek.broker import api, process
from odradek.broker.api import APIS, APIS_WITH_2PC, HANDLERS, MODULES, PEER_HANDLERS
from odradek.broker.api.index import ROWS
from odradek.broker.api.late_table import NO_APIS, ApiRow, LateTable
from odradek.broker.api.listeners import Listeners
from odradek.broker.reference import api_index
from odradek.protocol.errors import ProtocolError

ROOT = Path(__file__).parents[3]
SECONDS = 120.0

# In a process of its own: here the other tests have imported everything.
ONE_REQUEST = """
import sys
from odradek.broker.api import APIS, HANDLERS, apis_of
from odradek.broker.config.broker import BrokerConfig

def imported():
    return sorted(name[19:] for name in sys.modules if name.startswith("odradek.broker.api."))

known = apis_of(BrokerConfig())
assert [row.key for row in known.rows] == list(known)
before = imported()
assert HANDLERS[26].__name__ == "end_txn" and APIS[26].name == "EndTxn"
assert 9999 not in APIS and APIS.get(9999) is None and HANDLERS.get(4) is None
print(*sorted(set(imported()) - set(before)))
"""


def test_the_index_is_the_one_that_the_declarations_make() -> None:
    written = (ROOT / "broker" / "api" / "index.py").read_text()
    assert written == api_index.page(), "run scripts/fix"


def test_every_module_with_handlers_is_in_the_list() -> None:
    paths = (ROOT / "broker" / "api").glob("[a-z]*.py")
    assert sorted(MODULES) == sorted(
        path.stem for path in paths if "\nSERVED: Final = " in path.read_text()
    )


def test_a_request_imports_the_module_of_its_api_and_no_other() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ONE_REQUEST],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={"PYTHONPATH": str(ROOT / ".ns")},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["transactional", "txn"]


def test_the_tables_have_what_their_listeners_are_served() -> None:
    assert set(HANDLERS) == set(APIS) == set(APIS_WITH_2PC)
    assert PEER_HANDLERS.keys() < HANDLERS.keys()
    assert (HANDLERS[1].__name__, PEER_HANDLERS[1].__name__) == ("fetch", "replica_fetch")
    assert all(known.key == key for key, known in APIS.items())
    assert (APIS[22].max_version, APIS_WITH_2PC[22].max_version) == (5, 6)
    assert [row.max_version for row in APIS_WITH_2PC.rows if row.key == 22] == [6]


def test_a_value_is_found_once() -> None:
    found = []

    def find(row: ApiRow) -> str:
        found.append(row.key)
        return row.name

    table = LateTable([ApiRow(3, "Metadata", "metadata", 0, 13, Listeners.CLIENTS)], find)
    assert (table[3], table.get(3), table.get(4), len(table)) == ("Metadata", "Metadata", None, 1)
    assert found == [3]


def test_two_rows_of_one_api_are_a_mistake() -> None:
    row = ApiRow(3, "Metadata", "metadata", 0, 13, Listeners.CLIENTS)
    other = ApiRow(4, "Other", "other", 0, 13, Listeners.CLIENTS)
    with pytest.raises(AssertionError, match=r"^two handlers of one API: \[3\]$"):
        LateTable([row, other, row], lambda row: row)


@pytest.mark.parametrize(
    ("module", "on", "is_wrong"),
    [
        ("quorum", Listeners.CLIENTS, True),
        ("quorum", Listeners.ALL, True),
        ("quorum", Listeners.BROKERS, False),
        ("quotas", Listeners.BROKERS, True),
    ],
)
def test_two_declarations_of_one_api_are_found_before_the_index_is_written(
    module: str, on: Listeners, is_wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = next(each for each in api.declarations_of("quotas") if each.api.key == 48)
    again = replace(served, on=on)
    declarations = {"quotas": [served], module: [again]}
    if module == "quotas":
        declarations[module] = [served, again]
    monkeypatch.setattr(api_index, "MODULES", tuple(declarations))
    monkeypatch.setattr(api_index, "declarations_of", declarations.__getitem__)
    if not is_wrong:
        assert api_index.page().count("ApiRow(48, ") == 2
        return
    with pytest.raises(ValueError, match=rf"\(key 48\) is declared twice: in .*/{module}\.py"):
        api_index.page()


def test_a_request_without_a_connection_has_no_api() -> None:
    assert list(NO_APIS) == []
    assert NO_APIS.get(3) is None


def test_a_module_that_cannot_be_imported_now_closes_the_connection_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen: a broker without a file descriptor left stopped at the first request of an API."""

    def fail(module: str) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    row = next(row for row in ROWS if row.module == "quotas")
    with monkeypatch.context() as patched:
        patched.setattr(api, "import_module", fail)
        with pytest.raises(ProtocolError, match=f"{row.name} cannot be imported now: .*many open"):
            api._find_handler(row)
    assert callable(api._find_handler(row))


NOT_OURS: Final = {
    "a file with an error": NameError("name 'x' is not defined"),
    "half a file": SyntaxError("invalid syntax"),
    "no file": ModuleNotFoundError("No module named 'odradek.broker.api.quotas'"),
    "a file without SERVED": ModuleType("quotas"),
    "a file that serves something else": SimpleNamespace(SERVED=()),
}


@pytest.mark.parametrize("found", NOT_OURS.values(), ids=NOT_OURS)
def test_a_module_that_is_not_ours_closes_the_connection_and_the_broker_goes_on(
    found: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Seen: the broker stopped at a request of an API whose file had been replaced."""

    def find(module: str) -> object:
        if isinstance(found, Exception):
            raise found
        return found

    row = next(row for row in ROWS if row.module == "quotas")
    monkeypatch.setattr(api, "import_module", find)
    for look_up in (api._find_handler, api._find_api):
        caplog.clear()
        with pytest.raises(ProtocolError, match=f"{row.name} cannot be imported: "):
            look_up(row)
        (line,) = caplog.records
        assert (line.levelname, bool(line.exc_info)) == ("ERROR", True)
        assert line.getMessage() == f"{row.name} cannot be imported, and is not served"


async def test_what_no_request_has_asked_for_is_imported_after_the_start(
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[str] = []

    def note(module: str) -> None:
        seen.append(module)
        if module in MODULES[1:3] and seen.count(module) < 3:
            raise OSError(errno.EMFILE, "Too many open files")
        if module == MODULES[3]:
            raise NameError("name 'x' is not defined")

    monkeypatch.setattr(process, "declarations_of", note)
    has_started = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process._import_the_rest, has_started)
        await trio.sleep(60)
        assert seen == []
        has_started.set()
    assert seen == [*MODULES, *MODULES[1:3], *MODULES[1:3]]
    broken, *waiting = caplog.records
    assert (broken.levelname, bool(broken.exc_info)) == ("ERROR", True)
    assert broken.getMessage() == f"odradek.broker.api.{MODULES[3]} cannot be imported"
    assert [line.getMessage() for line in waiting] == [
        "2 modules of APIs are not imported yet, and are tried again in 5 s: "
        "[Errno 24] Too many open files"
    ] * 2
