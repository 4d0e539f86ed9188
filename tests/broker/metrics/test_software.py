"""The software of clients, as they say it in ApiVersions."""

from contextlib import ExitStack

import pytest

from odradek.broker.api.versions import SOFTWARE_MAX
from odradek.broker.metrics.of_connections import SOFTWARES_MAX
from odradek.protocol.apis.versions import API_VERSIONS, ApiVersionsRequest
from tests.broker.metrics.clerks import wait_until
from tests.broker.metrics.scraping import observed
from tests.broker.raw import RawClient

pytestmark = pytest.mark.slow

NAME = "kafka_server_socket_server_metrics_connections_software"


def say(client: RawClient, name: str, version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    assert client.ask(API_VERSIONS, 3, request).error_code == 0


def test_connections_are_counted_by_software_while_they_are_open() -> None:
    with observed() as (broker, page), RawClient(broker) as first, RawClient(broker) as second:
        say(first, "apache-kafka-java", "4.3.1")
        labels = {
            "client_software_name": "apache-kafka-java",
            "client_software_version": "4.3.1",
        }
        assert page.value(NAME, **labels) == 1
        say(second, "apache-kafka-java", "4.3.1")
        assert page.value(NAME, **labels) == 2
        say(second, "librdkafka", "2.13.0")
        assert page.value(NAME, **labels) == 1
        first.socket.close()
        wait_until(lambda: not page.values(NAME, **labels), "the connection is counted still")
        assert page.total(NAME) == 1


def test_clients_cannot_make_series_without_end() -> None:
    with observed() as (broker, page), ExitStack() as stack:
        for number in range(SOFTWARES_MAX + 5):
            client = stack.enter_context(RawClient(broker))
            say(client, "a" * 1_000, f"{number}.{'1' * 1_000}")
        scrape = page.scrape()
        assert len(scrape.values(NAME)) == SOFTWARES_MAX + 1
        assert scrape.value(NAME, client_software_name="other") == 5
        assert scrape.values(NAME, client_software_name="a" * SOFTWARE_MAX) == [1] * SOFTWARES_MAX
