"""A transaction is one span of OpenTelemetry, from its first partition to its last marker."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import trio
import trio.testing
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from odradek.broker.txn.spans import MILLISECOND_NS, NAME, TransactionSpans
from odradek.broker.values.topic_partition import TopicIdPartition
from odradek.protocol.errors import ErrorCode
from tests.broker.txn.world import CLIENT, ID, OTHER, P0, P1, REFUNDS_ID, Marker, World

NODE_ID = 4


@dataclass
class Traced:
    """A coordinator whose transactions are traced."""

    world: World
    exporter: InMemorySpanExporter

    def ended(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    async def one(self) -> ReadableSpan:
        """Return the only span when the markers are written."""
        await trio.testing.wait_all_tasks_blocked()
        (span,) = self.ended()
        return span


@pytest.fixture
async def traced(nursery: trio.Nursery) -> AsyncIterator[Traced]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    world = World(nursery)
    world.on_changed = TransactionSpans(provider.get_tracer("test"), NODE_ID).note_change
    await world.start()
    yield Traced(world, exporter)
    nursery.cancel_scope.cancel()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def events(span: ReadableSpan) -> list[tuple[str, dict[str, Any]]]:
    return [(event.name, dict(event.attributes or {})) for event in span.events]


async def test_a_committed_transaction_is_one_span_with_its_partitions_and_its_end(
    traced: Traced, autojump_clock: trio.testing.MockClock
) -> None:
    world = traced.world
    who = await world.init()
    began_ms = world.clock.wall_ms()
    await world.add(who, P0)
    await trio.sleep(1.5)
    await world.add(who, P1)
    await trio.sleep(0.5)
    await world.commit(who)
    span = await traced.one()
    assert span.name == NAME
    assert span.parent is None
    assert span.start_time == began_ms * MILLISECOND_NS
    assert span.end_time == (began_ms + 2_000) * MILLISECOND_NS
    assert attributes(span) == {
        "messaging.system": "kafka",
        "messaging.client.id": CLIENT.client_id,
        "client.address": CLIENT.host,
        "odradek.transactional_id": ID,
        "odradek.producer_id": who.producer_id,
        "odradek.producer_epoch": who.producer_epoch,
        "odradek.node_id": NODE_ID,
        "odradek.resumed": False,
        "odradek.end": "commit",
        "odradek.cause": "request",
        "odradek.partitions": ("refunds-0", "refunds-1"),
        "odradek.partition_count": 2,
        "odradek.markers_late": (),
        "odradek.markers_given_up": (),
    }
    assert events(span) == [
        ("partitions added", {"odradek.partitions": ("refunds-0",)}),
        ("partitions added", {"odradek.partitions": ("refunds-1",)}),
        ("decided", {"odradek.end": "commit", "odradek.cause": "request"}),
        ("markers written", {}),
    ]
    assert span.status.status_code is StatusCode.UNSET


async def test_each_transaction_of_an_id_has_a_span_of_its_own(traced: Traced) -> None:
    world = traced.world
    who = await world.init()
    for end in (world.commit, world.abort):
        await world.add(who, P0)
        who = await end(who)
        await trio.testing.wait_all_tasks_blocked()
    first, second = (attributes(span) for span in traced.ended())
    assert (first["odradek.end"], second["odradek.end"]) == ("commit", "abort")
    assert second["odradek.producer_epoch"] == first["odradek.producer_epoch"] + 1
    assert second["odradek.cause"] == "request"


async def test_an_id_that_is_only_initialised_has_no_span(traced: Traced) -> None:
    who = await traced.world.init(await traced.world.init())
    await traced.world.abort(who)
    await trio.testing.wait_all_tasks_blocked()
    assert traced.ended() == []


async def test_a_fence_is_the_cause_of_the_end_and_an_error(
    traced: Traced, autojump_clock: trio.testing.MockClock
) -> None:
    world = traced.world
    await world.add(await world.init(), P0)
    await trio.sleep(2)
    await world.init(client=OTHER)
    span = await traced.one()
    found = attributes(span)
    assert (found["odradek.end"], found["odradek.cause"]) == ("abort", "new instance")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description is not None
    assert "a new instance from 10.0.0.8 as 'worker-8' started; aborted" in span.status.description


async def test_a_time_out_is_the_cause_of_the_end(
    traced: Traced, autojump_clock: trio.testing.MockClock
) -> None:
    world = traced.world
    await world.add(await world.init(timeout_ms=5_000), P0)
    await trio.sleep(10)
    span = await traced.one()
    assert attributes(span)["odradek.cause"] == "timeout"
    assert span.end_time is not None
    assert span.start_time is not None
    assert (span.end_time - span.start_time) // MILLISECOND_NS >= 5_000


async def test_a_marker_that_comes_late_is_named_with_the_reason(
    traced: Traced, autojump_clock: trio.testing.MockClock
) -> None:
    world, refusals = traced.world, 3

    def answer(marker: Marker) -> ErrorCode:
        nonlocal refusals
        if marker.partition == P1 and refusals:
            refusals -= 1
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    world.markers.answer = answer
    who = await world.init()
    await world.add(who, P0, P1)
    await world.commit(who)
    await trio.sleep(10)
    span = await traced.one()
    assert attributes(span)["odradek.markers_late"] == ("refunds-1",)
    (late,) = (fields for name, fields in events(span) if name == "marker late")
    assert late["odradek.partition"] == "refunds-1"
    assert "NOT_LEADER_OR_FOLLOWER" in late["odradek.why"]


async def test_the_next_coordinator_goes_on_with_a_span_of_its_own(
    traced: Traced, autojump_clock: trio.testing.MockClock
) -> None:
    world = traced.world
    who = await world.init()
    began_ms = world.clock.wall_ms()
    await world.add(who, P0)
    await world.crash()
    await trio.sleep(1)
    await world.commit(who)
    span = await traced.one()
    found = attributes(span)
    assert found["odradek.resumed"] is True
    assert (found["odradek.transactional_id"], found["odradek.end"]) == (ID, "commit")
    assert found["odradek.producer_epoch"] == who.producer_epoch
    assert span.start_time == began_ms * MILLISECOND_NS


async def test_a_large_transaction_names_some_of_its_partitions(traced: Traced) -> None:
    many = [TopicIdPartition.of("refunds", index, REFUNDS_ID) for index in range(300)]
    who = await traced.world.init()
    await traced.world.add(who, *many)
    await traced.world.commit(who)
    found = attributes(await traced.one())
    assert (len(found["odradek.partitions"]), found["odradek.partition_count"]) == (100, 300)
