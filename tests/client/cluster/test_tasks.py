"""The background tasks of a client, without any broker."""

import pytest
import trio

from odradek.client import Closed
from odradek.client.cluster.tasks import BackgroundTasks


async def test_a_cancelled_program_does_not_cancel_the_tasks(autojump_clock: object) -> None:
    done: list[str] = []

    async def work() -> None:
        await trio.sleep(2)
        done.append("work")

    tasks = BackgroundTasks()
    with trio.move_on_after(1):
        await tasks.open()
        tasks.spawn(work)
        await tasks.wait_ended()
    assert done == ["work"]


async def test_closing_cancels_every_task_and_starts_none() -> None:
    ended: list[str] = []

    async def wait(name: str) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(name)

    tasks = BackgroundTasks()
    with pytest.raises(Closed):
        tasks.check_open()
    await tasks.open()
    tasks.check_open()
    tasks.spawn(wait, "before")
    tasks.is_closed = True
    tasks.cancel()
    tasks.spawn(wait, "after")
    await tasks.wait_ended()
    assert ended == ["before"]
    with pytest.raises(Closed):
        tasks.check_open()
