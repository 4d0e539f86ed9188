"""What users test with: a real broker process that can be stopped, killed and started again."""

from pathlib import Path

import pytest

from odradek.broker.testing import (
    BrokerDidNotStart,
    RunningBroker,
    odradek_broker,
    odradek_broker_config,
    run_broker,
)
from tests.broker.asks import batch, create_topic, fetch, produce
from tests.broker.raw import RawClient

__all__ = ["odradek_broker", "odradek_broker_config"]  # fixtures


def test_the_fixture_is_a_broker_that_serves(odradek_broker: RunningBroker) -> None:
    assert odradek_broker.address == f"127.0.0.1:{odradek_broker.port}"
    with RawClient(odradek_broker) as client:
        assert create_topic(client, "t").error_code == 0


def test_everything_goes_away_with_the_block() -> None:
    with run_broker() as broker:
        directory, process = broker.data_dir, broker.process
        assert directory.exists()
    assert process.returncode == 0
    assert not directory.exists()


def test_a_directory_of_the_callers_stays(tmp_path: Path) -> None:
    with run_broker(data_dir=tmp_path) as broker, RawClient(broker) as client:
        create_topic(client, "t")
        produce(client, "t", batch(b"x"))
    with run_broker(data_dir=tmp_path) as broker, RawClient(broker) as client:
        assert fetch(client, "t", 0).high_watermark == 1


def test_settings_are_passed_on() -> None:
    with (
        run_broker(config={"num.partitions": "2"}) as broker,
        RawClient(broker) as client,
    ):
        assert create_topic(client, "t", -1).num_partitions == 2


def test_what_the_broker_said_comes_with_the_error() -> None:
    with (
        pytest.raises(BrokerDidNotStart, match=r"Did you mean num\.partitions\?"),
        run_broker(config={"num.partition": "2"}),
    ):
        pass
