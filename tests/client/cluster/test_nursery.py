"""The nurseries of a client: what leaves them, and where Ctrl-C strikes."""

# ruff: noqa: PT012 - what raises here is the end of a block, so the block is the statement

import pytest
import trio

from odradek.client.cluster.nursery import ClientNursery, ends_where_it_waits


async def test_ctrl_c_leaves_a_nursery_as_itself() -> None:
    with pytest.raises(KeyboardInterrupt, match="pressed"):
        async with ClientNursery() as outer, ClientNursery() as inner:
            outer.start_soon(trio.sleep_forever)
            inner.start_soon(trio.sleep_forever)
            raise KeyboardInterrupt("pressed")


async def test_another_failure_is_not_hidden_by_ctrl_c() -> None:
    async def fail_at_the_end() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ZeroDivisionError

    with pytest.raises(BaseExceptionGroup) as failure:
        async with ClientNursery() as nursery:
            nursery.start_soon(fail_at_the_end)
            await trio.testing.wait_all_tasks_blocked()
            raise KeyboardInterrupt
    found = failure.value
    assert found.subgroup(ZeroDivisionError) is not None
    assert found.subgroup(KeyboardInterrupt) is not None


async def test_tasks_of_a_nursery_and_async_methods_are_protected() -> None:
    seen: list[bool] = []

    @ends_where_it_waits
    class Client:
        async def call(self) -> None:
            seen.append(trio.lowlevel.currently_ki_protected())

        def look(self) -> None:
            seen.append(trio.lowlevel.currently_ki_protected())

    async def note(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        seen.append(trio.lowlevel.currently_ki_protected())
        task_status.started()

    Client().look()
    await Client().call()
    async with ClientNursery() as nursery:
        nursery.start_soon(note)
        await nursery.start(note)
    assert seen == [False, True, True, True]
