"""A broker sends the spans of its transactions where the setting says."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from odradek.broker.testing import BrokerDidNotStart, RunningBroker, run_broker
from odradek.client.blocking import Producer
from tests.broker.traced import console_spans, wait_marked

ROOT: Final = Path(__file__).parents[2]
RUN_SECONDS: Final = 120.0
LISTED: Final = (
    "from odradek.broker.cli import main; main.get_command(None, 'serve'); "
    "import odradek.broker.process, sys; "
    "print([name for name in sys.modules if name.startswith('opentelemetry')])"
)


def in_transactions(broker: RunningBroker) -> None:
    with Producer(broker.address, transactional_id="orders-7", client_id="shop") as producer:
        with producer.transaction():
            producer.send("orders", b"1")
        with producer.transaction() as aborted:
            producer.send("orders", b"2")
            producer.flush()
            aborted.abort()


class Collector:
    """An OTLP collector that keeps what it gets."""

    def __init__(self) -> None:
        self.received: list[ExportTraceServiceRequest] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            """Takes spans."""

            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    raise AssertionError("the test asks for no compression")
                collector.received.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.server.server_port}",
            "OTEL_SERVICE_NAME": "broker-of-the-test",
        }


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    with made.server:
        thread = threading.Thread(target=made.server.serve_forever)
        thread.start()
        yield made
        made.server.shutdown()
        thread.join()


def test_a_collector_gets_a_span_of_each_transaction(collector: Collector) -> None:
    settings = {"otel.traces.exporter": "otlp", "node.id": "3"}
    with run_broker(config=settings, environment=collector.environment) as broker:
        in_transactions(broker)
        wait_marked(broker, "orders-7")
        assert broker.stop() == 0
    found = {}
    for request in collector.received:
        for resource in request.resource_spans:
            of = {each.key: each.value.string_value for each in resource.resource.attributes}
            assert of["service.name"] == "broker-of-the-test"
            assert of["service.instance.id"] == "3"
            for scope in resource.scope_spans:
                for span in scope.spans:
                    named = {each.key: each.value.string_value for each in span.attributes}
                    assert named["odradek.transactional_id"] == "orders-7"
                    assert named["messaging.client.id"] == "shop"
                    found[named["odradek.end"]] = [event.name for event in span.events]
    story = ["partitions added", "decided", "markers written"]
    assert found == {"commit": story, "abort": story}


def test_the_console_gets_a_line_of_json_for_each_span() -> None:
    with run_broker(config={"otel.traces.exporter": "console"}) as broker:
        in_transactions(broker)
        spans = console_spans(broker, "orders-7")
    assert [span["odradek.end"] for span in spans] == ["commit", "abort"]


def test_a_broker_that_stops_does_not_wait_for_a_collector_that_is_not_there() -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    with run_broker(config={"otel.traces.exporter": "otlp"}, environment=environment) as broker:
        in_transactions(broker)
        assert broker.stop() == 0


def test_a_collector_that_never_answers_holds_up_no_client_and_no_stop() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "OTEL_BSP_SCHEDULE_DELAY": "1",
        }
        config = {"otel.traces.exporter": "otlp"}
        with run_broker(config=config, environment=environment) as broker:
            in_transactions(broker)
            with silent.accept()[0]:  # the thread of the exporter waits from now on
                in_transactions(broker)
                assert broker.stop() == 0


def test_a_variable_that_opentelemetry_refuses_is_named_in_one_sentence() -> None:
    environment = {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "many"}
    with (
        pytest.raises(BrokerDidNotStart) as raised,
        run_broker(config={"otel.traces.exporter": "console"}, environment=environment),
    ):
        pass
    said = str(raised.value)
    assert "otel.traces.exporter: OpenTelemetry refuses a variable of the environment: " in said
    assert "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT" in said
    assert "Traceback" not in said


def test_without_the_setting_nothing_of_opentelemetry_is_imported() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LISTED],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".ns")},
    )
    assert ran.stdout == "[]\n", ran.stderr
