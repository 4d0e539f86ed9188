"""The transactions of attempts that are ended from outside."""

import logging

import pytest

from odradek.client.blocking import TransactionGroup
from odradek.client.producing.detached import DetachedTransaction
from odradek.client.spark import members
from odradek.client.spark.members import abort_each, transactional_id


@pytest.mark.parametrize(("limit_s", "tried"), [(0.0, 1), (60.0, 4)])
def test_a_broker_that_is_away_is_not_waited_for_once_for_each_task(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, limit_s: float, tried: int
) -> None:
    monkeypatch.setattr(members, "ABORTS_S", limit_s)
    caplog.set_level(logging.DEBUG, "odradek.spark")
    open_ones = [DetachedTransaction(transactional_id("g", f"r.0.{n}.0.x"), n, 0) for n in range(4)]
    with TransactionGroup("127.0.0.1:1", "g", first_connect_ms=20) as group:
        assert abort_each(group, open_ones) == 0
    lines = [record.getMessage() for record in caplog.records]
    assert sum("was not aborted: " in line for line in lines) == tried
    left = [line for line in lines if "3 open transactions are left to time out: " in line]
    assert len(left) == (1 if tried == 1 else 0)
