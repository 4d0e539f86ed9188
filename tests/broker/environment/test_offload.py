"""What runs outside the loop, while the system lets no thread start."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from odradek.broker.environment.system import system_env
from tests.fakes.disk import FakeDisk
from tests.fakes.meta_store import FakeMetaStore


async def test_work_waits_until_a_thread_can_start(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large request ended the broker."""
    run_sync, refused = trio.to_thread.run_sync, 0

    async def run_later(*work: Any, **options: Any) -> Any:
        nonlocal refused
        refused += 1
        if refused <= 3:
            raise RuntimeError("can't start new thread")
        return await run_sync(*work, **options)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_later)
    offload = system_env(FakeDisk(), FakeMetaStore()).offload
    assert await offload(lambda: "done") == "done"
    assert refused == 4


async def test_an_error_of_the_work_is_not_taken_for_one_of_its_thread() -> None:
    def fail() -> None:
        raise RuntimeError("of the work")

    with pytest.raises(RuntimeError, match="of the work"):
        await system_env(FakeDisk(), FakeMetaStore()).offload(fail)
