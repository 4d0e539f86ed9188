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


def test_a_fault_of_several_brokers_is_refused_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Seen: each seed failed, as a broker that is alone has no link that could be cut."""
    with pytest.raises(SystemExit):
        main(["--seeds", "1-30", "--brokers", "1", "--faults", "Kill,LinkCut"])
    assert "LinkCut needs several brokers: set --brokers 3" in capsys.readouterr().err
