"""No change of a live setting takes away the way to undo it."""

from collections.abc import Iterator
from typing import Final

import pytest

from odradek.broker.config.broker import broker_settings
from odradek.broker.config.live import ALL_BROKERS, DYNAMIC
from odradek.broker.config.settings import INT32_MAX, INT64_MAX, ConfigType, Setting
from odradek.broker.testing import RunningBroker, run_broker
from odradek.client.blocking import Admin, OdradekError, Producer
from odradek.protocol.errors import ErrorCode as E
from tests.broker.api.altering import BROKER, DELETE, SET, alter, described
from tests.broker.api.transactor import Transactor
from tests.broker.asks import batch, create_topic, produce
from tests.broker.raw import RawClient
from tests.stories.looking import eventually

pytestmark = pytest.mark.slow

LARGEST: Final = {ConfigType.INT: INT32_MAX, ConfigType.LONG: INT64_MAX, ConfigType.DOUBLE: 1e300}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with run_broker(config={"log.retention.check.interval.ms": "50"}) as broker:
        with RawClient(broker) as client:
            assert create_topic(client, "written").error_code == 0
        yield broker
        assert "Traceback" not in broker.log, broker.log


def extremes(setting: Setting) -> list[str]:
    """Return the least and the largest value of a setting, or all that it can be."""
    if setting.choices:
        return list(setting.choices)
    if setting.type is ConfigType.BOOLEAN:
        return ["true", "false"]
    largest = LARGEST[setting.type]
    low = -largest if setting.low is None else setting.low
    high = largest if setting.high is None else setting.high
    kind = float if setting.type is ConfigType.DOUBLE else int
    return [str(kind(low)), str(kind(high))]


@pytest.mark.parametrize("name", sorted(DYNAMIC))
def test_a_live_setting_can_be_undone_whatever_it_is_set_to(
    broker: RunningBroker, name: str
) -> None:
    for text in extremes(broker_settings()[name]):
        with RawClient(broker) as client:  # and stays, as a consumer does
            answer = alter(client, BROKER, ALL_BROKERS, (name, SET, text))
            assert answer.error_code == 0, (text, answer.error_message)
            with RawClient(broker) as administrator:
                assert name in described(administrator, BROKER, "1", name)
                undone = alter(administrator, BROKER, ALL_BROKERS, (name, DELETE, None))
                assert undone.error_code == 0
    with RawClient(broker) as client:
        assert produce(client, "written", batch(b"as before")).error_code == 0


def test_no_connections_at_all_are_refused_as_a_setting(broker: RunningBroker) -> None:
    with RawClient(broker) as client:
        answer = alter(client, BROKER, ALL_BROKERS, ("max.connections", SET, "0"))
    assert answer.error_code == E.INVALID_REQUEST
    assert "max.connections cannot be 0; the nearest is 1." in answer.error_message


def test_what_was_given_at_the_start_and_does_not_count_is_logged() -> None:
    given = {"message.max.bytes": "100000", "log.retention.ms": "5000"}
    with run_broker(config=given) as broker:
        with RawClient(broker) as client:
            change = ("message.max.bytes", SET, "200")
            assert alter(client, BROKER, ALL_BROKERS, change).error_code == 0
        broker.restart()
        assert broker.log.count("of the file or the command line does not count: ") == 1
        assert "message.max.bytes=100000 of the file or the command line does" in broker.log
        assert "it was changed to 200 while a broker ran." in broker.log


def test_two_phase_commit_and_abort_on_disconnect_are_turned_on_while_the_broker_runs(
    broker: RunningBroker,
) -> None:
    def begin(transactional_id: str) -> Producer:
        return Producer(
            broker.address, transactional_id=transactional_id, two_phase_commit=True
        ).__enter__()

    with Admin(broker.address) as admin:
        with pytest.raises(OdradekError):
            begin("prepared")
        admin.alter_cluster_configs({"transaction.two.phase.commit.enable": "true"})
        with Producer(broker.address, transactional_id="prepared", two_phase_commit=True):
            pass
        admin.alter_cluster_configs({"transaction.abort.on.disconnect": "true"})
        with RawClient(broker) as client:
            transactor = Transactor(client)
            transactor.init()
            transactor.add()
        eventually(lambda: admin.describe_transaction(transactor.id).is_open, False)
        names = ("transaction.two.phase.commit.enable", "transaction.abort.on.disconnect")
        admin.alter_cluster_configs(dict.fromkeys(names))
        with pytest.raises(OdradekError):
            begin("prepared")
