"""`odradek bench`, as far as no broker is needed."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.client.cli import bench
from tests.client.live import Run

TRANSACTIONS = 1_000


def test_ctrl_c_ends_all_producers_of_a_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command went on until each producer had committed all of its transactions."""
    interrupted = threading.Event()
    committed = []

    class Fake:
        def __init__(self, _bootstrap: str, *, transactional_id: str, **_: Any) -> None:
            self._is_first = transactional_id.endswith("-0")

        def __enter__(self) -> "Fake":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        @contextmanager
        def transaction(self) -> Iterator[Any]:
            if self._is_first:
                interrupted.set()
                raise KeyboardInterrupt
            interrupted.wait()
            time.sleep(0.001)
            yield SimpleNamespace(send=lambda *_: None)
            committed.append(self)

    monkeypatch.setattr(bench, "Producer", Fake)
    words = ("bench", "txn", "--topic", "t", "-x", str(2 * TRANSACTIONS), "--producers", "2")
    assert Run("127.0.0.1:1")(*words).exit_code == 130
    assert len(committed) < TRANSACTIONS
