"""The lag of a group in records and in seconds, from samples."""

from odradek.client.web.lags import BUCKET_MS, LagHistory, LagSample
from odradek.client.web.lanes import KEPT_MS

START_MS = 10 * KEPT_MS


def history(*samples: tuple[int, int, int]) -> LagHistory:
    """Return a history of (second, end of the logs, offset of the group)."""
    found = LagHistory()
    for second, end, offset in samples:
        found.add(LagSample(START_MS + 1_000 * second, end - offset, 0, end))
    return found


def test_a_group_at_the_end_is_no_time_behind() -> None:
    assert history((0, 100, 90), (5, 120, 120)).behind_ms() == 0


def test_a_group_is_as_old_as_the_end_that_it_has_reached() -> None:
    assert history((0, 100, 0), (5, 200, 0), (10, 300, 200)).behind_ms() == 5_000
    assert history((0, 100, 0), (5, 200, 0), (10, 300, 250)).behind_ms() == 2_500
    assert history((0, 100, 0), (5, 200, 0), (10, 300, 110)).behind_ms() == 9_500


def test_a_group_that_stands_still_gets_older() -> None:
    still = [(second, 100 + second, 100) for second in range(0, 60, 5)]
    assert history(*still).behind_ms() == 55_000


def test_a_lag_from_before_the_first_sample_has_no_known_age() -> None:
    assert history((0, 100, 10), (5, 100, 20)).behind_ms() is None


def test_an_end_that_does_not_grow_counts_from_when_it_was_reached_last() -> None:
    assert history((0, 100, 90), (5, 100, 90), (10, 130, 100)).behind_ms() == 5_000


def test_samples_are_kept_for_an_hour_in_rows_of_five_minutes() -> None:
    found = history(*((second, 1, 0) for second in range(0, 2 * KEPT_MS // 1_000, 60)))
    buckets = found.buckets()
    times = [sample[0] for samples in buckets.values() for sample in samples]
    assert max(times) - min(times) == KEPT_MS
    assert len(buckets) <= KEPT_MS // BUCKET_MS + 1
    assert all(
        begin_ms <= sample[0] < begin_ms + BUCKET_MS
        for begin_ms, samples in buckets.items()
        for sample in samples
    )
