"""The groups that this broker coordinates."""

from collections import Counter

from odradek.broker.environment.turns import Turns
from odradek.broker.metrics.families import Families
from odradek.broker.metrics.inside import Inside

CLASSIC, CONSUMER = "classic", "consumer"


async def add_groups(families: Families, inside: Inside, turns: Turns) -> None:
    states: Counter[tuple[str, str]] = Counter()
    groups = inside.core.groups
    if not groups.is_loading:
        for classic in groups.list_groups():
            await turns.take()
            states[CLASSIC, classic.state.value] += 1
    for _, consumer_state in groups.consumers.list_groups():
        await turns.take()
        states[CONSUMER, consumer_state.value] += 1
    for (protocol, state), count in sorted(states.items()):
        families.gauge(
            "odradek_groups",
            "Groups, by protocol and state.",
            count,
            protocol=protocol,
            state=state,
        )
