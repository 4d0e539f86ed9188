"""The simulation does not really wait, and the earlier version is exported once."""

from pathlib import Path

import pytest

from tests.fakes.jumping_clock import let_time_jump
from tests.upgrade.earlier import COMMIT, export_earlier


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    let_time_jump(items, Path(__file__).parent)


@pytest.fixture(scope="session")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command `odradek` of the earlier version."""
    program = export_earlier(tmp_path_factory.mktemp("earlier"))
    if program is None:
        pytest.skip(f"this clone has no commit {COMMIT}")
    return program
