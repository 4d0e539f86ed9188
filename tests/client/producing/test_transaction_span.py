"""A producer with a tracer of OpenTelemetry makes one span for each transaction."""

import asyncio
from typing import Any

import pytest
import trio
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, Tracer
from trio.testing import MockClock

from odradek import client
from odradek.broker.testing import run_broker
from odradek.client import Aborted, Fenced, aio, blocking
from odradek.protocol.apis.produce import PRODUCE
from odradek.protocol.errors import ErrorCode
from tests.broker.traced import console_spans
from tests.client.conftest import MakeProducer
from tests.client.fake_broker import FakeBroker, refused
from tests.client.live import name_of

ID = "orders-7"
SHARED = ("odradek.transactional_id", "odradek.producer_id", "odradek.producer_epoch")


class Traces:
    """A tracer, and the spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._provider = TracerProvider(shutdown_on_exit=False)
        self._provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = self._provider.get_tracer("test")

    @property
    def ended(self) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name != "parent"]


@pytest.fixture
def traces() -> Traces:
    return Traces()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_a_committed_transaction_is_a_span_with_its_partitions(
    autojump_clock: MockClock, broker: FakeBroker, producer_of: MakeProducer, traces: Traces
) -> None:
    async with producer_of(
        broker, transactional_id=ID, client_id="shop", tracer=traces.tracer
    ) as producer:
        epoch = producer.producer_epoch
        with traces.tracer.start_as_current_span("parent") as parent:
            async with producer.transaction():
                await producer.send("t", b"a", partition=0)
                await producer.send("t", b"b", partition=1)
        (span,) = traces.ended
        version = producer.transaction_version
    assert span.parent is not None
    assert span.parent.span_id == parent.get_span_context().span_id
    assert attributes(span) == {
        "messaging.system": "kafka",
        "messaging.client.id": "shop",
        "odradek.transactional_id": ID,
        "odradek.producer_id": producer.producer_id,
        "odradek.producer_epoch": epoch,
        "odradek.transaction_version": version,
        "odradek.end": "commit",
        "odradek.partitions": ("t-0", "t-1"),
        "odradek.partition_count": 2,
        "odradek.groups": (),
    }
    assert span.status.status_code is StatusCode.UNSET


async def test_an_abort_of_the_program_is_no_error_and_one_by_the_broker_is(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer, traces: Traces
) -> None:
    async with producer_of(fake_broker, transactional_id=ID, tracer=traces.tracer) as producer:
        async with producer.transaction() as transaction:
            await producer.send("t", b"a", partition=0)
            await transaction.abort()
        fake_broker.next(PRODUCE, refused(ErrorCode.MESSAGE_TOO_LARGE))
        with pytest.raises(client.OdradekError):
            async with producer.transaction():
                await producer.send("t", b"b", partition=0)
    wanted, forced = traces.ended
    assert attributes(wanted)["odradek.end"] == attributes(forced)["odradek.end"] == "abort"
    assert "odradek.cause" not in attributes(wanted)
    assert wanted.status.status_code is StatusCode.UNSET
    assert attributes(forced)["odradek.cause"] == "MESSAGE_TOO_LARGE"
    assert forced.status.status_code is StatusCode.ERROR
    assert "max.message.bytes" in str(forced.status.description)


async def test_a_fenced_producer_does_not_know_the_end(bootstrap: str, traces: Traces) -> None:
    topic = name_of("spans")
    async with client.Producer(bootstrap, transactional_id=topic, tracer=traces.tracer) as producer:
        await producer.transaction().__aenter__()
        await producer.send_and_wait(topic, b"a")
        async with client.Producer(bootstrap, transactional_id=topic):
            pass
        with pytest.raises((Fenced, Aborted)):
            await producer.send_and_wait(topic, b"b")
    (span,) = traces.ended
    assert attributes(span)["odradek.end"] == "unknown"
    assert span.status.status_code is StatusCode.ERROR


async def test_a_transaction_that_is_left_prepared_says_so(
    autojump_clock: MockClock, fake_broker: FakeBroker, producer_of: MakeProducer, traces: Traces
) -> None:
    async with producer_of(fake_broker, transactional_id=ID, tracer=traces.tracer) as producer:
        async with producer.transaction() as transaction:
            await producer.send("t", b"a", partition=0)
            await transaction.prepare()
        assert traces.ended == []
    (span,) = traces.ended
    assert attributes(span)["odradek.end"] == "prepared"
    assert [event.name for event in span.events] == ["prepared"]


def write_by_trio(address: str, topic: str, tracer: Tracer) -> None:
    async def story() -> None:
        async with client.Producer(address, transactional_id=topic, tracer=tracer) as producer:
            with tracer.start_as_current_span("parent"):
                async with producer.transaction():
                    await producer.send(topic, b"a")

    trio.run(story)


def write_by_asyncio(address: str, topic: str, tracer: Tracer) -> None:
    async def story() -> None:
        async with aio.Producer(address, transactional_id=topic, tracer=tracer) as producer:
            with tracer.start_as_current_span("parent"):
                async with producer.transaction():
                    await producer.send(topic, b"a")

    asyncio.run(story())


def write_by_blocking(address: str, topic: str, tracer: Tracer) -> None:
    with (
        blocking.Producer(address, transactional_id=topic, tracer=tracer) as producer,
        tracer.start_as_current_span("parent"),
        producer.transaction(),
    ):
        producer.send(topic, b"a")


def test_the_span_of_each_client_is_below_the_programs_and_names_what_the_brokers_does(
    traces: Traces,
) -> None:
    stories = {"t": write_by_trio, "a": write_by_asyncio, "b": write_by_blocking}
    with run_broker(config={"otel.traces.exporter": "console"}) as broker:
        for topic, write in stories.items():
            write(broker.address, topic, traces.tracer)
        found = console_spans(broker, *stories)
    of_broker = {each["odradek.transactional_id"]: each for each in found}
    of_client = [attributes(span) for span in traces.ended]
    assert [each["odradek.transactional_id"] for each in of_client] == [*stories]
    assert of_broker.keys() == stories.keys()
    for ours in of_client:
        theirs = of_broker[ours["odradek.transactional_id"]]
        assert {name: ours[name] for name in SHARED} == {name: theirs[name] for name in SHARED}
        assert list(ours["odradek.partitions"]) == theirs["odradek.partitions"]
    assert all(span.parent is not None for span in traces.ended)


def test_what_is_no_tracer_is_refused() -> None:
    with pytest.raises(ValueError, match="tracer is what opentelemetry"):
        client.Producer("127.0.0.1:1", tracer=print)  # type: ignore[arg-type]
