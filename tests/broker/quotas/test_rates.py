"""Buckets, with times that the test chooses."""

import pytest

from odradek.broker.quotas.rates import Bucket
from tests.drawing import given, st

QUOTA = 100.0
BURST = 10 * QUOTA


def waits(bucket: Bucket, now: float, debt_max_seconds: float = 30) -> float:
    return bucket.wait_seconds(QUOTA, BURST, now, debt_max_seconds=debt_max_seconds)


def test_a_client_that_begins_may_use_the_whole_burst() -> None:
    bucket = Bucket(BURST, 5.0)
    bucket.take(1_000)
    assert waits(bucket, 5.0) == 0
    bucket.take(1)
    assert waits(bucket, 5.0) == pytest.approx(0.01)


def test_the_first_wait_is_kafkas() -> None:
    bucket = Bucket(BURST, 0.0)
    bucket.take(1_500)
    # 1,500 in 10 s are 150 a second: (150 - 100) / 100 * 10 s, as Kafka computes it.
    assert waits(bucket, 0.0) == pytest.approx(5)
    assert waits(bucket, 4.5) == pytest.approx(0.5)
    assert waits(bucket, 5.0) == 0


def test_what_is_given_back_does_not_count() -> None:
    bucket = Bucket(BURST, 0.0)
    bucket.take(1_000)
    bucket.take(1)
    bucket.take(-1)
    assert waits(bucket, 0.0) == 0


@given(
    st.lists(st.integers(min_value=1, max_value=500), min_size=1, max_size=60),
    st.lists(st.floats(min_value=0, max_value=20), min_size=60, max_size=60),
)
def test_a_client_that_waits_as_it_is_asked_uses_its_quota(
    sizes: list[int], pauses: list[float]
) -> None:
    bucket, now, used = Bucket(BURST, 0.0), 0.0, 0
    for size, pause in zip(sizes, pauses, strict=False):
        bucket.take(size)
        used += size
        now += waits(bucket, now)
        assert waits(bucket, now) == 0
        assert used <= BURST + QUOTA * now + 1
        now += pause


def test_one_request_may_overdraw_a_bucket_and_the_next_one_waits() -> None:
    """Measured on Kafka: 20 partitions at 1 a second pass, and the next one waits for 8.9 s."""
    bucket = Bucket(11, 0.0)
    assert bucket.wait_seconds(1, 11, 0.0) == 0
    bucket.take(20)
    assert bucket.wait_seconds(1, 11, 0.1) == pytest.approx(8.9)
    assert bucket.wait_seconds(1, 11, 9.0) == 0
    bucket.take(1)
    assert bucket.wait_seconds(1, 11, 9.0) == pytest.approx(1)


def test_a_bucket_saves_no_more_than_its_burst() -> None:
    bucket = Bucket(11, 0.0)
    bucket.take(11)
    assert bucket.wait_seconds(1, 11, 1_000.0) == 0
    bucket.take(12)
    assert bucket.wait_seconds(1, 11, 1_000.0) == pytest.approx(1)


def test_a_debt_that_nobody_would_wait_for_is_forgiven() -> None:
    bucket = Bucket(BURST, 0.0)
    bucket.take(1e9)
    assert waits(bucket, 0.0) == 30
    assert waits(bucket, 30.0) == 0


def test_a_quota_that_is_raised_pays_the_debt_sooner() -> None:
    bucket = Bucket(BURST, 0.0)
    bucket.take(3_000)
    assert waits(bucket, 0.0) == 20
    assert bucket.wait_seconds(100 * QUOTA, 100 * BURST, 0.0) == pytest.approx(0.2)
