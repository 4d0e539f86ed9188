"""Requests that the port for brokers does not serve: one line says so, and no bug is reported."""

import logging

import pytest

from odradek.broker.api import APIS, PEER_HANDLERS
from tests.broker.samples import request_frame
from tests.broker.serving import serving


@pytest.mark.parametrize("key", [key for key in APIS if key not in PEER_HANDLERS])
async def test_a_client_that_connects_to_the_port_for_brokers_is_no_bug_of_the_broker(
    key: int, caplog: pytest.LogCaptureFixture
) -> None:
    api = APIS[key]
    with caplog.at_level(logging.INFO):
        async with serving(PEER_HANDLERS) as (network, _):
            client = network.client()
            client.send(request_frame(api, api.max_version))
            await client.closed()
    (line,) = [record for record in caplog.records if "closed" in record.getMessage()]
    assert f"{api.name} is not served on the port for brokers" in line.getMessage()
    assert (line.levelno, line.exc_info) == (logging.INFO, None)
