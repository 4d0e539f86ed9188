"""`scripts/cluster` itself: what it prints when there is no cluster, or no such program."""

from pathlib import Path

from click.testing import CliRunner

from tests.cluster.__main__ import main


def test_the_status_of_a_cluster_that_is_down_is_an_error(tmp_path: Path) -> None:
    finished = CliRunner().invoke(main, ["--dir", str(tmp_path), "status"])

    assert finished.exit_code == 1
    assert "Nothing runs" in finished.output


def test_a_program_that_does_not_exist_is_an_error_in_one_sentence(tmp_path: Path) -> None:
    words = ["--dir", str(tmp_path), "run", "no-such-program", "--option"]
    finished = CliRunner().invoke(main, words)

    assert finished.exit_code == 1
    assert finished.output == "Error: There is no program no-such-program to run.\n"
