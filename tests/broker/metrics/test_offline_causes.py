"""Logs that cannot be used are counted by what has happened to them."""

import os
import shutil
from pathlib import Path

import pytest

from odradek.broker.testing import run_broker
from odradek.client.blocking import Admin, Producer
from tests.broker.metrics.scraping import Page

pytestmark = pytest.mark.slow

NAME = "odradek_partitions_offline"


def test_a_log_that_is_cut_short_is_damaged_and_one_that_is_gone_is_missing(tmp_path: Path) -> None:
    config = {"metrics.listen": "127.0.0.1:0"}
    with run_broker(data_dir=tmp_path, config=config) as broker:
        with Admin(broker.address) as admin:
            admin.create_topic("t", partitions=3)
        with Producer(broker.address) as producer:
            for partition in range(3):
                producer.send("t", b"1", partition=partition)
        scrape = Page(broker).scrape()
        causes = ("damaged", "missing", "disk")
        assert [scrape.value(NAME, cause=cause) for cause in causes] == [0, 0, 0]
        broker.stop()
        (log,) = (tmp_path / "t-0").glob("*.log")
        os.truncate(log, log.stat().st_size - 1)
        shutil.rmtree(tmp_path / "t-1")
        broker.start()
        scrape = Page(broker).scrape()
        assert [scrape.value(NAME, cause=cause) for cause in causes] == [1, 1, 0]
