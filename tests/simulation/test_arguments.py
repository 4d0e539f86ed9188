"""The arguments of `scripts/simulate`."""

import pytest

from tests.simulation.__main__ import main


@pytest.mark.parametrize(
    "words", [["--set", "log.flush=journal"], ["--clients", "make"], ["--seconds", "3"]]
)
def test_what_counts_with_faults_only_is_refused_without(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--seed", "1", *words])
    assert f"{words[0]} needs --faults" in capsys.readouterr().err
