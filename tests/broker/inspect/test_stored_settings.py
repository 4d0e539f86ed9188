"""`odradek storage settings`: changed settings of a stopped broker are shown and removed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.broker.cli import main
from odradek.broker.testing import RunningBroker, run_broker
from tests.broker.api.altering import BROKER, SET, alter, described
from tests.broker.raw import RawClient


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker with a change for all brokers and two for itself."""
    with run_broker(data_dir=tmp_path / "data", config={"max.connections": "100"}) as broker:
        with RawClient(broker) as client:
            for where, name, text in (
                ("", "max.connections", "1"),
                ("1", "max.connections", "2"),
                ("1", "message.max.bytes", "5000"),
            ):
                assert alter(client, BROKER, where, (name, SET, text)).error_code == 0
        broker.stop()
        yield broker


def run(directory: Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["storage", "settings", str(directory), *options])
    return result.exit_code, result.output


ALL = (
    "All brokers:\n  max.connections=1\nBroker 1:\n  max.connections=2\n  message.max.bytes=5000\n"
)


def test_a_setting_that_keeps_clients_out_is_removed_while_the_broker_is_stopped(
    stopped: RunningBroker,
) -> None:
    assert run(stopped.data_dir) == (0, ALL)
    assert json.loads(run(stopped.data_dir, "--json")[1])["settings"] == {
        "all": {"max.connections": "1"},
        "1": {"max.connections": "2", "message.max.bytes": "5000"},
    }
    assert run(stopped.data_dir, "--unset", "max.connections") == (
        0,
        "Broker 1:\n  message.max.bytes=5000\n",
    )
    stopped.start()
    with RawClient(stopped) as client:
        shown = described(client, BROKER, "1", "max.connections", "message.max.bytes")
    assert {name: found.value for name, found in shown.items()} == {
        "max.connections": "100",
        "message.max.bytes": "5000",
    }
    stopped.stop()
    assert run(stopped.data_dir, "--unset", "message.max.bytes") == (
        0,
        f"No setting of a broker is changed in {stopped.data_dir}.\n",
    )


def test_a_name_that_is_not_stored_removes_nothing(stopped: RunningBroker) -> None:
    code, output = run(stopped.data_dir, "--unset", "max.connections", "--unset", "max.conections")
    assert code == 1
    assert "max.conections is not among the changed settings; nothing was removed." in output
    assert run(stopped.data_dir) == (0, ALL)


def test_a_directory_in_use_or_without_metadata_is_left_alone(
    stopped: RunningBroker, tmp_path: Path
) -> None:
    stopped.start()
    assert "A broker uses" in run(stopped.data_dir)[1]
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "has no cluster.meta" in run(empty)[1]
    assert not (empty / "cluster.meta").exists()
    (empty / "node.meta").write_bytes(b"")
    assert "whose settings are in etcd" in run(empty)[1]
