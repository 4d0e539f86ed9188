"""Which tests `scripts/test --changed` and `--quick` run."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.laws.source import PACKAGES, ROOT
from tests.selection import (
    AGAIN_AT_MOST,
    CENTRAL,
    ELSEWHERE,
    FAILED,
    QUICK,
    SMOKE,
    differing,
    failed,
    is_central,
    needed_for,
    without_inner,
)


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("broker/txn/state.py", ("tests/broker/txn",)),
        ("broker/group/consumer/assignor.py", ("tests/broker/group",)),
        ("broker/inspect/importing/command.py", ("tests/broker/inspect/importing",)),
        ("client/producing/producer.py", ("tests/client/producing",)),
        ("client/spark/relay.py", ("tests/spark",)),
        ("protocol/apis/fetch.py", ("tests/protocol",)),
        ("docs/groups.md", ELSEWHERE["docs"]),
        ("README.md", ELSEWHERE["docs"]),
        ("scripts/siege", ("tests/siege",)),
        ("scripts/refunds/demo.py", ("tests/refunds",)),
        ("tests/broker/txn/world.py", ("tests/broker/txn",)),
        ("tests/judge/stories/groups.py", ("tests/judge",)),
        ("tests/broker/txn/test_deleted_long_ago.py", ()),
        ("tests/test_tidy.py", ("tests/test_tidy.py",)),
        ("LICENSE", ()),
    ],
)
def test_a_file_has_the_tests_of_its_folder(path: str, wanted: tuple[str, ...]) -> None:
    assert needed_for(path) == wanted


def test_a_file_beside_the_folders_of_a_package_has_the_tests_beside_those_of_the_tests() -> None:
    found = needed_for("client/green.py")
    assert "tests/client/test_green.py" in found
    assert not any(test.startswith("tests/client/producing") for test in found)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_of_the_product_has_tests(package: str) -> None:
    """A new folder needs one of the same name in tests/, or a line in `ELSEWHERE`."""
    modules = [path.relative_to(ROOT).as_posix() for path in (ROOT / package).rglob("*.py")]
    assert [module for module in modules if not needed_for(module)] == []


def test_what_is_named_is_there() -> None:
    named = {*CENTRAL, *ELSEWHERE, *(test for tests in ELSEWHERE.values() for test in tests)}
    named |= {target.partition("::")[0] for target in (*QUICK, *SMOKE)}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_every_test_of_the_project_is_found_from_its_own_path() -> None:
    for test in (ROOT / "tests").rglob("test_*.py"):
        path = test.relative_to(ROOT).as_posix()
        assert needed_for(path) == (path,)


def test_a_folder_is_run_once() -> None:
    targets = [
        "tests/broker/txn/test_state.py",
        "tests/broker/txn",
        "tests/client",
        "tests/broker/txn",
    ]
    assert without_inner(targets) == ["tests/broker/txn", "tests/client"]


@pytest.mark.parametrize(
    ("path", "wanted"),
    [("protocol/varint.py", True), ("tests/fakes/disk.py", True), ("broker/txn/state.py", False)],
)
def test_what_almost_everything_stands_on_is_central(path: str, wanted: bool) -> None:
    assert is_central(path) is wanted


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., None]:
    def run(*command: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *command], cwd=tmp_path, check=True, capture_output=True)

    run("init")
    for name in ("kept", "edited", "deleted"):
        (tmp_path / name).write_text(name)
    run("add", ".")
    run("commit", "-m", "first")
    return run


def test_what_differs_is_what_was_edited_deleted_added_and_is_new(
    git: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "edited").write_text("now")
    (tmp_path / "deleted").unlink()
    (tmp_path / "added").write_text("added")
    git("add", "added")
    (tmp_path / "new").write_text("new")
    assert differing("HEAD", tmp_path) == ["added", "deleted", "edited", "new"]


def test_an_earlier_commit_counts_what_was_committed_since(
    git: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "edited").write_text("now")
    git("commit", "-am", "second")
    assert differing("HEAD", tmp_path) == []
    assert differing("HEAD~1", tmp_path) == ["edited"]


@pytest.mark.parametrize("count", [0, 1, AGAIN_AT_MOST, AGAIN_AT_MOST + 1])
def test_a_few_failures_are_tried_again_and_a_run_that_broke_off_is_not(
    tmp_path: Path, count: int
) -> None:
    tests = [f"tests/test_x.py::test_y[{number}]" for number in range(count)]
    (tmp_path / FAILED).parent.mkdir(parents=True)
    (tmp_path / FAILED).write_text(json.dumps(dict.fromkeys(tests, True)))
    if 0 < count <= AGAIN_AT_MOST:
        assert failed(tmp_path) == tests
    else:
        with pytest.raises(SystemExit, match=r"ended the run|worth another try"):
            failed(tmp_path)


def test_without_a_note_of_a_run_nothing_is_tried_again(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="ended the run"):
        failed(tmp_path)
