"""Whatever can be written as a request is answered or closes its connection, and nothing else.

Never a traceback: that would be a bug of ours that a client can reach.
"""

from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from odradek.broker.api import APIS
from odradek.broker.testing import RunningBroker, run_broker
from odradek.protocol.api import Api
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsRequest
from odradek.protocol.errors import ErrorCode
from tests.broker.asks import batch, create_topic, produce
from tests.broker.raw import RawClient
from tests.broker.samples import request_frame
from tests.drawing import HealthCheck, Phase, given, settings, st
from tests.protocol.messages import messages

pytestmark = pytest.mark.slow

FLAGS = {
    "allow_auto_topic_creation": False,
    "validate_only": True,
    "max_wait_ms": 0,
    "rebalance_timeout_ms": 1,
    "session_timeout_ms": 6000,
}
"""Set so in every request: nothing is made in masses, nothing waits for long."""

few = settings(
    derandomize=True,
    deadline=None,
    max_examples=30,  # `scripts/fuzz` sends hundreds of thousands
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    names = ("transaction.state.log.num.partitions", "offsets.topic.num.partitions")
    with run_broker(config=dict.fromkeys(names, "2")) as broker:
        with RawClient(broker) as client:
            create_topic(client, "s", 3)
        yield broker
        assert "Traceback" not in broker.log, broker.log


def tame(message: Any) -> Any:
    """The message with `FLAGS`, where it has them."""
    present = {name: value for name, value in FLAGS.items() if hasattr(message, name)}
    return replace(message, **present)


def serves(broker: RunningBroker) -> bool:
    with RawClient(broker) as client:
        asks = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
        return bool(client.ask(API_VERSIONS, 3, asks).error_code == ErrorCode.NONE)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_any_message_is_answered_or_closes(broker: RunningBroker, api: Api[Any, Any]) -> None:
    versions = st.integers(api.min_version, api.max_version)

    @few
    @given(data=st.data(), version=versions)
    def send(data: st.DataObject, version: int) -> None:
        message = tame(data.draw(messages(cast(Hashable, api.request), version)))
        with RawClient(broker) as client:
            client.request(api, version, message)
            client.half_close()  # the answer, if there is one, then the end
            frame = client.frame()
            if frame:
                assert client.answer_to(frame) is not None

    send()
    assert serves(broker)
    assert "Traceback" not in broker.log, broker.log


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_any_changed_byte_is_answered_or_closes(broker: RunningBroker, api: Api[Any, Any]) -> None:
    frame = request_frame(api, api.max_version)

    @few
    @given(place=st.integers(8, len(frame) - 1), value=st.integers(0, 255))
    def send(place: int, value: int) -> None:
        changed = bytearray(frame)
        changed[place] = value
        with RawClient(broker) as client:
            client.send(bytes(changed))
            client.half_close()
            client.frame()

    send()
    assert serves(broker)
    assert "Traceback" not in broker.log, broker.log


@few
@given(place=st.integers(0, 70), value=st.integers(0, 255))
def test_any_changed_byte_of_a_batch_is_refused_or_stored(
    broker: RunningBroker, place: int, value: int
) -> None:
    records = batch(b"some value")
    records[place] = value
    with RawClient(broker) as client:
        answer = produce(client, "s", records)
        assert answer.error_code in set(ErrorCode)
        if place >= 21 and records != batch(b"some value"):
            assert answer.error_code != ErrorCode.NONE
