"""The simulation does not really wait."""

from pathlib import Path

import pytest

from tests.fakes.jumping_clock import let_time_jump


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    let_time_jump(items, Path(__file__).parent)
