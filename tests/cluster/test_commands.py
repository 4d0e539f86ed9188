"""`scripts/cluster` itself: what it prints when there is no cluster."""

from pathlib import Path

from click.testing import CliRunner

from tests.cluster.__main__ import main


def test_the_status_of_a_cluster_that_is_down_is_an_error(tmp_path: Path) -> None:
    finished = CliRunner().invoke(main, ["--dir", str(tmp_path), "status"])

    assert finished.exit_code == 1
    assert "Nothing runs" in finished.output
