"""Two threads that share one transactional producer, one transaction at a time."""

from odradek.broker.testing import run_broker
from odradek.client.blocking import Consumer, Producer
from tests.client.live import WAIT_MS, name_of


def test_a_block_that_is_left_drops_nothing_of_the_next_transaction() -> None:
    """The first has committed early, and its block is left by an exception meanwhile."""
    topic = name_of("turns")
    with (
        run_broker() as broker,
        Producer(broker.address, transactional_id=name_of("id")) as producer,
    ):
        first, second = producer.transaction(), producer.transaction(wait_ms=WAIT_MS)
        first.__enter__()
        first.commit()
        second.__enter__()
        producer._is_awake = True  # so that the record stays in the queue
        second.send(topic, b"x", partition=0)
        producer._hosted.loop.call(first._leave, ZeroDivisionError, ZeroDivisionError(), None)
        producer._is_awake = False
        second.send(topic, b"y", partition=0)
        second.__exit__(None, None, None)
        assert second.state == "committed"
        with Consumer(broker.address) as consumer:
            consumer.assign([(topic, 0)])
            values: list[bytes | None] = []
            while len(values) < 2:
                values += [record.value for record in consumer.poll(WAIT_MS)]
    assert values == [b"x", b"y"]
