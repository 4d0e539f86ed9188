"""The secret of a password, where the system lets no thread start."""

import pytest
import trio

from odradek.client.sasl.credentials import AT_ONCE, salted_password
from odradek.protocol import scram


async def test_a_password_of_many_iterations_needs_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that logs in to another one ended."""

    async def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(trio.to_thread, "run_sync", refuse)
    given = ("sha256", "secret", b"salt", AT_ONCE + 1)
    assert await salted_password(*given) == scram.salted_password(*given)
