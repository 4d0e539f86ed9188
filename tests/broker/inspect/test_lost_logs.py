"""`odradek log repair` sees logs that are lost, and lets them begin anew only when told."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.broker.cli import main
from odradek.broker.testing import run_broker
from odradek.client.blocking import Admin, Producer


def repair(*arguments: object) -> tuple[int, str]:
    words = ["log", "repair", *map(str, arguments)]
    result = CliRunner().invoke(main, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.mark.slow
def test_log_repair_names_a_log_that_is_lost_and_makes_it_anew_only_when_told(
    tmp_path: Path,
) -> None:
    """It said that no log is damaged."""
    with run_broker(data_dir=tmp_path, config={"offsets.topic.num.partitions": "1"}) as broker:
        with Admin(broker.address) as admin:
            admin.create_topic("t", partitions=3)
        with Producer(broker.address) as producer:
            for partition in range(3):
                producer.send("t", b"v", partition=partition).result()
        broker.stop()
        assert repair(tmp_path) == (0, "No log is damaged: 3 logs were read completely.\n")
        shutil.rmtree(tmp_path / "t-0")
        for path in (tmp_path / "t-1").glob("*.log"):
            path.unlink()
        for dry_run in ((), ("--make-missing", "--dry-run")):
            status, said = repair(tmp_path, *dry_run)
            assert status == 1
            assert f"{tmp_path}/t-0 is lost: it is not there." in said
            assert f"{tmp_path}/t-1 is lost: it has no segment of its log." in said
            assert "No log is damaged: 1 logs" in said
        broker.start()
        assert "t-0 is offline" in broker.log
        assert "t-1 is offline" in broker.log
        assert "t-2 is offline" not in broker.log
        broker.stop()
        assert "given up" not in repair(tmp_path)[1]
        status, said = repair(tmp_path / "t-1", "--make-missing")
        assert (status, f"kept: {tmp_path}/t-1.set-aside" in said) == (0, True)
        assert repair(tmp_path)[0] == 1  # t-0 is still lost
        status, said = repair(tmp_path / "t-0", "--make-missing")
        assert status == 0
        assert repair(tmp_path)[0] == 0
        broker.start()
        assert "offline" not in broker.log
        assert "begin empty: t-0, t-1" in broker.log
        broker.stop()
        assert repair(tmp_path)[0] == 0
        assert repair(tmp_path / "t-0", "--make-missing")[0] == 0  # it is there
        broker.start()
        assert "begin empty" not in broker.log


def test_a_directory_without_any_log_is_still_no_data_directory(tmp_path: Path) -> None:
    assert "There is no log in" in repair(tmp_path)[1]
    assert "There is no directory" in repair(tmp_path / "t-0")[1]
