"""Mutated requests against a broker process, while an honest client runs transactions.

`scripts/fuzz` does the same with any number of inputs.
"""

from pathlib import Path
from typing import Final

import pytest

from odradek.broker.api import APIS
from odradek.broker.testing import run_broker
from tests.fuzz.attack import attack
from tests.fuzz.inputs import make
from tests.fuzz.setting import CONFIG, create_topics

INPUTS: Final = 5_000
MEMORY_MAX_MIB: Final = 600
"""A broker's memory, its limits for requests and responses, and its limit for decompression."""


@pytest.mark.slow
def test_no_bytes_from_a_client_end_the_broker_or_reach_another_client(tmp_path: Path) -> None:
    with run_broker(data_dir=tmp_path, config=CONFIG) as broker:
        create_topics(broker)
        report = attack(broker, seed=1, numbers=iter(range(INPUTS)))
    assert report.problems == []
    assert report.input_count == INPUTS
    assert report.seen.committed
    assert report.peak_mib < MEMORY_MAX_MIB, report.memory_mib


def test_an_input_is_the_same_in_every_run_and_reaches_every_api() -> None:
    made = [make(7, number) for number in range(400)]
    assert made == [make(7, number) for number in range(400)]
    names = " ".join(each.name for each in made)
    assert [api.name for api in APIS.values() if f"{api.name} v" not in names] == []
