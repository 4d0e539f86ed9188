"""A scrape that waits for a disk holds up no other answer of the listener."""

from typing import cast

import pytest
import trio
import trio.testing

from odradek.broker.environment.env import inline
from odradek.broker.environment.turns import Turns
from odradek.broker.metrics import page as module
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.inside import Inside
from odradek.broker.metrics.page import SCRAPE_SECONDS, MetricsPage


async def test_a_scrape_does_not_wait_without_end_for_one_that_reads_of_a_disk(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """Each scrape kept its place of the listener, until none was left for `/live`."""
    disk_goes_on = trio.Event()

    async def read_disk(families: Families, _inside: Inside, _turns: Turns) -> None:
        with trio.CancelScope(shield=True):  # a thread that reads cannot be cancelled
            await disk_goes_on.wait()
        families.gauge("lag", "Of a group.", 7)

    monkeypatch.setattr(module, "SOURCES", [read_disk])
    scraped = MetricsPage(cast(Inside, None), inline)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scraped.get, "")
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):
            assert (await scraped.get("")).status == 503
        assert trio.current_time() - began == 3 * SCRAPE_SECONDS
        disk_goes_on.set()
    found = await scraped.get("")
    assert (found.status, b"lag 7.0\n" in found.body) == (200, True)
