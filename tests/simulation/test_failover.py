"""The measurement of a failover: it waits for what it says, and prints it."""

from tests.simulation.failover import run_failover


def test_a_failover_ends_with_every_partition_led_and_no_dead_broker_in_sync() -> None:
    found = run_failover(3, 30)
    assert found.partitions == found.led + found.followed == 30
    assert 0 < found.noticed_seconds <= found.elected_seconds <= found.led_seconds < 2
    assert found.led_seconds <= found.settled_seconds < 2
    assert found.acknowledged_seconds > found.noticed_seconds / 2
    assert found.heirs.total() == found.led
    assert found.keys["partitions"] == 30
    assert "30 partitions" in str(found)


def test_a_broker_that_goes_without_a_word_is_missed_when_its_lease_is_over() -> None:
    assert 2 < run_failover(3, 30, is_heard=False).noticed_seconds < 5
