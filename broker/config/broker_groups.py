"""The broker's settings of consumer groups of the new protocol (KIP-848), with Kafka's bounds."""

from typing import Final

from odradek.broker.config.settings import INT32_MAX, Setting, int32, settings_of, string, words
from odradek.broker.config.unused import UnusedSettings, unused_last
from odradek.late import dataclass

SECOND_MS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupSettings(UnusedSettings):
    """A part of `BrokerConfig`."""

    group_consumer_session_timeout_ms: int = int32(
        45 * SECOND_MS,
        low=1,
        about="How long a member of the new group protocol may be silent.",
    )
    group_consumer_min_session_timeout_ms: int = int32(
        45 * SECOND_MS, low=1, about="The least of `group.consumer.session.timeout.ms`."
    )
    group_consumer_max_session_timeout_ms: int = int32(
        60 * SECOND_MS, low=1, about="The most of `group.consumer.session.timeout.ms`."
    )
    group_consumer_heartbeat_interval_ms: int = int32(
        5 * SECOND_MS, low=1, about="How often members of the new group protocol send heartbeats."
    )
    group_consumer_min_heartbeat_interval_ms: int = int32(
        5 * SECOND_MS, low=1, about="The least of `group.consumer.heartbeat.interval.ms`."
    )
    group_consumer_max_heartbeat_interval_ms: int = int32(
        15 * SECOND_MS, low=1, about="The most of `group.consumer.heartbeat.interval.ms`."
    )
    group_consumer_max_size: int = int32(
        INT32_MAX, low=1, about="The most members of a group of the new protocol."
    )
    group_consumer_assignors: str = words(
        "uniform,range",
        choices=("uniform,range", "range,uniform", "uniform", "range"),
        about="The assignors of the new group protocol. The first is used if members name none.",
    )
    group_consumer_migration_policy: str = string(
        "bidirectional",
        choices=("disabled", "upgrade", "downgrade", "bidirectional"),
        any_case=True,
        about="The directions in which groups with members change between the classic and the new "
        "protocol when members of the other one join, or when the last ones of the new go.",
    )
    group_consumer_assignment_interval_ms: int = int32(
        SECOND_MS, low=0, about="The least time between two assignments of one group."
    )
    group_consumer_min_assignment_interval_ms: int = int32(
        0, low=0, about="The least of `group.consumer.assignment.interval.ms`."
    )
    group_consumer_max_assignment_interval_ms: int = int32(
        15 * SECOND_MS, low=0, about="The most of `group.consumer.assignment.interval.ms`."
    )


def groups_last(settings: dict[str, Setting]) -> dict[str, Setting]:
    """Return settings in the order of the reference: those of this module, then the unused."""
    groups = settings_of(ConsumerGroupSettings)
    return unused_last(
        {**{name: it for name, it in settings.items() if name not in groups}, **groups}
    )
