"""The trio object behind a blocking or asyncio one, with an object that only notes what happens."""

from typing import Self

import trio

from odradek.client.blocking.hosted import Hosted


class Noting:
    """An async context manager that notes whether it is open."""

    is_open = False

    async def __aenter__(self) -> Self:
        self.is_open = True
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.is_open = False


def test_a_close_that_is_cancelled_before_it_begins_still_leaves_the_object() -> None:
    """Frameworks such as anyio cancel each wait in a cancelled block: the client stayed open."""
    noting = Noting()
    hosted = Hosted(lambda: noting)
    loop = hosted.loop
    assert noting.is_open

    async def close_cancelled() -> None:
        end = hosted.closing()
        assert end is not None
        with trio.CancelScope() as scope:
            scope.cancel()
            await end((None, None, None))

    loop.call(close_cancelled)
    assert not noting.is_open
