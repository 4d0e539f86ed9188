"""Transactions that no coordinator will end: who can say so."""

from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio

from odradek.broker.cluster.image import ClusterImage, PartitionImage, TopicImage
from odradek.broker.environment.turns import Turns
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.of_hanging import add_hanging
from odradek.client.blocking import Admin
from odradek.protocol.state_topics import TRANSACTION_STATE_TOPIC
from tests.broker.metrics.clerks import wait_until
from tests.broker.metrics.scraping import observed, scraped
from tests.client.hanging import WITHOUT_VERIFICATION, leave_hanging

NODE, OTHER = 1, 2
PRODUCER_ID = 7
NAME = "odradek_txn_hanging"


async def hanging(*, owns: str | None, state_leader: int, leads: bool = True) -> dict[str, float]:
    """Return the samples where a transaction is late in partition `a`.

    `owns` is the partition in the transaction of the id with this producer; None: no id has it.
    `leads` is False for a follower of `a`.
    """
    late: Any = SimpleNamespace(leading=object() if leads else None, by_id="a")
    view = SimpleNamespace(transaction=SimpleNamespace(producer_id=PRODUCER_ID), partitions={owns})
    state = PartitionImage(leader=state_leader, leader_epoch=0, replicas=(NODE,), isr=(NODE,))
    topic = TopicImage(
        name=TRANSACTION_STATE_TOPIC, topic_id=UUID(int=1), configs={}, partitions=(state,)
    )
    inside: Any = SimpleNamespace(
        core=SimpleNamespace(
            settings=SimpleNamespace(now=SimpleNamespace(node_id=NODE)),
            transactions=SimpleNamespace(
                transactions=lambda: [] if owns is None else [view], is_loading=False
            ),
        ),
        metadata=SimpleNamespace(image=ClusterImage(cluster_id="").with_topics([topic])),
    )
    families = Families()
    await add_hanging(families, inside, Turns(), [(late, PRODUCER_ID)])
    scrape = scraped(families)
    return {where: scrape.value(NAME, coordinator=where) for where in ("here", "elsewhere")}


async def test_a_transaction_without_an_id_hangs_if_no_other_broker_can_have_the_id() -> None:
    assert await hanging(owns=None, state_leader=NODE) == {"here": 1, "elsewhere": 0}
    assert await hanging(owns=None, state_leader=OTHER) == {"here": 0, "elsewhere": 1}


async def test_the_id_says_whether_its_transaction_has_the_partition() -> None:
    assert await hanging(owns="a", state_leader=OTHER) == {"here": 0, "elsewhere": 0}
    assert await hanging(owns="b", state_leader=OTHER) == {"here": 1, "elsewhere": 0}


async def test_a_transaction_that_hangs_is_counted_by_the_leader_of_its_partition_only() -> None:
    found = await hanging(owns=None, state_leader=NODE, leads=False)
    assert found == {"here": 0, "elsewhere": 0}


@pytest.mark.slow
def test_a_transaction_that_hangs_is_counted_until_an_administrator_ends_it() -> None:
    settings = {**WITHOUT_VERIFICATION, "transaction.max.timeout.ms": "1000"}
    with (
        observed(**{name.replace(".", "_"): text for name, text in settings.items()}) as (
            broker,
            page,
        ),
        Admin(broker.address) as admin,
    ):
        assert page.value(NAME, coordinator="here") == 0
        place, _ = trio.run(partial(leave_hanging, broker.address))
        wait_until(lambda: page.value(NAME, coordinator="here") == 1, "it is not counted")
        (found,) = admin.find_hanging(place.topic, max_timeout_ms=1_000)
        admin.abort_transaction(
            place,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            coordinator_epoch=found.coordinator_epoch,
        )
        assert page.value(NAME, coordinator="here") == 0
        assert page.value(NAME, coordinator="elsewhere") == 0
