"""What tests of the lane share."""

from collections import Counter
from typing import Any

import pytest

from odradek.broker.partitions.leader import Leader
from odradek.broker.partitions.partitions import Partitions
from odradek.broker.server.lane import Lane, Taken
from odradek.broker.server.server import Server


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """Count the frames that the lane was offered, by whether it took them."""
    counts: Counter[bool] = Counter()
    take = Lane.take

    def counted(lane: Lane, asking: Any, frame: memoryview) -> Taken | None:
        result = take(lane, asking, frame)
        counts[result is not None] += 1
        return result

    monkeypatch.setattr(Lane, "take", counted)
    return counts


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> list[Server]:
    """The servers that have begun to serve."""
    found: list[Server] = []
    serve = Server.serve

    async def noted(server: Server, *args: Any, **options: Any) -> None:
        found.append(server)
        await serve(server, *args, **options)

    monkeypatch.setattr(Server, "serve", noted)
    return found


@pytest.fixture
def leaders(monkeypatch: pytest.MonkeyPatch) -> list[Leader]:
    """The leaders that were asked for."""
    found: list[Leader] = []
    leader = Partitions.leader

    def noted(partitions: Partitions, topic: str, index: int) -> Leader:
        found.append(leader(partitions, topic, index))
        return found[-1]

    monkeypatch.setattr(Partitions, "leader", noted)
    return found
