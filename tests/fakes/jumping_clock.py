"""A clock that jumps when all tasks wait, for whole folders of tests: no test really sleeps.

A folder's conftest calls `let_time_jump` in its `pytest_collection_modifyitems`.
"""

from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.abc
import trio.testing


def let_time_jump(items: list[pytest.Item], folder: Path) -> None:
    """Run every async test below `folder` on such a clock.

    pytest-trio takes a clock only from a test's arguments. With this function no test must name it.
    """
    for item in items:
        if folder in item.path.parents and iscoroutinefunction(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.trio(run=_run), append=False)


def _run(
    test: Callable[[], Awaitable[Any]],
    *,
    clock: trio.abc.Clock | None,
    instruments: Sequence[trio.abc.Instrument],
) -> Any:
    jumping = trio.testing.MockClock(autojump_threshold=0)
    return trio.run(test, clock=clock or jumping, instruments=instruments)
