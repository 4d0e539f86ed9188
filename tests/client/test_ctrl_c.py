"""What Ctrl-C leaves behind in a blocking producer that is used further, as in a notebook."""

import trio

from odradek.broker.testing import run_broker
from odradek.client.blocking import Producer
from tests.client.live import name_of


def test_the_end_of_a_transaction_that_waits_for_its_topic_is_interrupted() -> None:
    """The transaction stayed open, and its producer could not begin another one."""
    with (
        run_broker(config={"auto.create.topics.enable": "false"}) as broker,
        Producer(broker.address, transactional_id=name_of("ctrl-c")) as producer,
    ):
        transaction = producer.transaction()

        async def leave_interrupted() -> None:
            with trio.CancelScope() as scope:
                scope.cancel()
                await transaction._leave(None, None, None)

        transaction.__enter__()
        transaction.send("there-is-none", b"a")
        producer._hosted.loop.call(leave_interrupted)
        assert transaction.state == "aborted"
        with producer.transaction() as following:
            pass
        assert following.state == "committed"
