"""Of two producers with one transactional id only the newer can commit; with two ids, both can."""

import contextlib
from collections.abc import Callable

import pytest

from odradek.broker.testing import RunningBroker
from odradek.client import blocking
from tests.compat.agents import Agent, Client, Refused
from tests.stories.conftest import Stage
from tests.stories.fencing import (
    FENCED_AS,
    LOG_OF_ONE_ID,
    LOG_OF_TWO_IDS,
    STATES_OF_ONE_ID,
    play,
)
from tests.stories.logs import log_of, states_of
from tests.stories.looking import Onlooker, eventually

Unique = Callable[[str], str]


def test_a_new_instance_aborts_what_the_old_one_left_open_and_fences_it(
    stage: Stage, client: Client, agent: Agent, unique: Unique
) -> None:
    topic, transactional_id = unique("fenced"), unique("refunds")
    stage.onlooker.create_topic(topic)

    first, _ = play(agent, stage.onlooker, topic, transactional_id, transactional_id)
    with pytest.raises(Refused) as refused:
        first.commit()
    stage.onlooker.wait_until_settled(topic)

    assert refused.value.kind == FENCED_AS[client.name]
    with contextlib.suppress(Refused):
        first.abort()  # franz-go takes it, the others refuse it
    with pytest.raises(Refused) as refused_again:
        first.begin()
    assert refused_again.value.kind == FENCED_AS[client.name], "being fenced is for ever"
    assert log_of(stage.data_dir, topic) == LOG_OF_ONE_ID[client.transaction_version]
    eventually(
        lambda: states_of(stage.data_dir, transactional_id),
        STATES_OF_ONE_ID[client.transaction_version],
    )


def test_instances_with_two_ids_do_not_disturb_each_other(
    stage: Stage, client: Client, agent: Agent, unique: Unique
) -> None:
    topic = unique("apart")
    stage.onlooker.create_topic(topic)

    first, second = play(agent, stage.onlooker, topic, unique("refunds"), unique("refunds"))
    eventually(
        lambda: stage.onlooker.ends(topic).high_watermark, 3
    )  # a commit comes before it shows
    first.commit()
    stage.onlooker.wait_until_settled(topic)

    assert log_of(stage.data_dir, topic) == LOG_OF_TWO_IDS[client.transaction_version]
    assert first.write(topic, "value-3") == 4
    stage.onlooker.wait_until_settled(topic)
    assert second.write(topic, "value-4") == 6


def test_the_broker_says_who_fenced_it(
    story_broker: RunningBroker, client: Client, agent: Agent, unique: Unique
) -> None:
    onlooker, topic, transactional_id = (
        Onlooker(story_broker.address),
        unique("why"),
        unique("refunds"),
    )
    onlooker.create_topic(topic)

    play(agent, onlooker, topic, transactional_id, transactional_id)
    with blocking.Admin(story_broker.address) as admin:
        found = admin.describe_transaction(transactional_id)

    assert found.epoch_bump_cause == "new instance"
    assert found.client_host == "127.0.0.1"
    assert found.explanation is not None
    sentence = (
        f"'{transactional_id}' was fenced: a new instance from 127.0.0.1 as '{found.client_id}'"
    )
    assert found.explanation.startswith(sentence)
    assert sentence in story_broker.log
