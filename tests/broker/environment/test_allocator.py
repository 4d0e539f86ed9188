"""The allocator of the C library, which is not always glibc's."""

import ctypes
from types import SimpleNamespace

import pytest
import trio

from odradek.broker.environment.allocator import LOOK_SECONDS, keep_freed_memory


async def test_a_library_that_cannot_give_memory_back_is_left_as_it_is(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It kept what was freed, and the broker ended at its first quiet moment."""
    calls = []
    library = SimpleNamespace(mallopt=lambda option, value: calls.append((option, value)))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    with trio.fail_after(LOOK_SECONDS):
        await keep_freed_memory()
    assert calls == []
