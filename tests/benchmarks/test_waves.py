"""Fsyncs in a row: the count of them, and the two ways to see them."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts.benchmarks.slow_fsyncs import DELAY_SECONDS, slow
from scripts.benchmarks.waves import BY_STRACE, BY_WRAPPER, starts, waves


@pytest.mark.parametrize(
    ("begins", "expected"),
    [
        ([], 0),
        ([0.0], 1),
        ([0.0, 1.0, 9.0], 1),  # side by side
        ([0.0, 10.0, 20.0], 3),  # one after the other
        ([0.0, 1.0, 12.0, 13.0, 14.0, 30.0], 3),
        ([0.0, 5.0, 10.0, 15.0, 20.0], 3),  # the second and the fourth belong to something else
    ],
)
def test_waves_are_the_most_fsyncs_of_which_no_two_overlap(
    begins: Sequence[float], expected: int
) -> None:
    assert waves(begins, 10.0) == expected


def test_beginnings_of_fsyncs_of_topics_are_read_from_what_strace_writes(tmp_path: Path) -> None:
    file = tmp_path / "starts"
    file.write_text(
        "11 100.000001 fdatasync(7</data/orders-0/00000000000000000000.log> <unfinished ...>\n"
        "12 100.000002 fsync(9</data/my-orders-11/00000000000000000000.log>) = 0 (DELAYED)\n"
        "12 100.000003 fsync(9</data/my-orders-11/00000000000000000000.index>) = 0 (DELAYED)\n"
        "12 100.000004 fsync(9</data/__cluster_metadata-0/00000000000000000000.log>) = 0\n"
        "12 100.000005 fsync(9</data/checkpoint>) = 0 (DELAYED)\n"
        "11 100.020001 <... fdatasync resumed>)      = 0 (DELAYED)\n"
        "12 100.100000 +++ exited with 0 +++\n"
    )
    assert starts(file, BY_STRACE) == [100.000001, 100.000002]


def test_a_slow_fsync_is_noted_made_and_delayed(tmp_path: Path) -> None:
    file = tmp_path / "starts"
    out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    log = tmp_path / "orders-0" / "00000000000000000000.log"
    log.parent.mkdir()
    flushed: list[int] = []
    flush = slow(flushed.append, out)

    with log.open("w") as of_topic, (tmp_path / "checkpoint").open("w") as other:
        descriptors = [of_topic.fileno(), other.fileno(), of_topic.fileno()]
        for descriptor in descriptors:
            flush(descriptor)

    os.close(out)
    assert flushed == descriptors
    first, second = starts(file, BY_WRAPPER)
    assert second - first >= 2 * DELAY_SECONDS * 0.9
