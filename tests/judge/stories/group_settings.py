"""Settings of groups: described, changed, replaced, refused, listed, and what they do."""

from typing import Final

from tests.judge.administering import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
    Change,
    change,
    replace_all,
    resources,
    settings,
)
from tests.judge.broker import Broker
from tests.judge.grouping import beat, commit, join_consumer, topic
from tests.judge.story import GROUPS, in_setup, variants

G: Final = (GROUP, "g")
SESSION: Final = "consumer.session.timeout.ms"
HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT: Final = "consumer.assignment.interval.ms"
KEYS: Final = (SESSION, HEARTBEAT, ASSIGNMENT)
REFUSED: Final[tuple[list[Change], ...]] = (
    [("nonsense", SET, "1")],
    [("nonsense", DELETE, None)],
    [("", SET, "1")],
    [("retention.ms", SET, "1")],
    [("group.consumer.session.timeout.ms", SET, "45000")],
    [(SESSION, SET, "many")],
    [(SESSION, SET, "")],
    [(SESSION, SET, "45000.5")],
    [(SESSION, SET, "99999999999")],
    [(SESSION, SET, None)],
    [(SESSION, SET, "0")],
    [(SESSION, SET, "-1")],
    [(SESSION, SET, "44999")],
    [(SESSION, SET, "60001")],
    [(HEARTBEAT, SET, "4999")],
    [(HEARTBEAT, SET, "15001")],
    [(HEARTBEAT, SET, "0")],
    [(ASSIGNMENT, SET, "-1")],
    [(ASSIGNMENT, SET, "15001")],
    [(SESSION, APPEND, "1")],
    [(SESSION, SUBTRACT, "1")],
    [(SESSION, 9, "1")],
    [(SESSION, DELETE, "many")],
    [(SESSION, SET, "45000"), (SESSION, SET, "46000")],
    [(SESSION, SET, "45000"), ("nonsense", SET, "1")],
    [(SESSION, SET, "45000"), (HEARTBEAT, SET, "60000")],
    [(SESSION, SET, " 45000 ")],
    [(SESSION, SET, "45000"), (HEARTBEAT, SET, "15000"), (ASSIGNMENT, SET, "0")],
)
in_groups = in_setup(GROUPS)


def until_set(broker: Broker, value: str, key: str = SESSION) -> None:
    settings(broker, G, keys=(key,), until=value)


@in_groups
@variants(version=(1, 2, 3, 4), synonyms=(True, False))
def story_described(broker: Broker, version: int, synonyms: bool) -> None:
    """A group that is not there has the settings of the broker."""
    settings(broker, G, keys=KEYS, synonyms=synonyms, version=version)
    change(broker, (G, [(HEARTBEAT, SET, "6000")]))
    settings(broker, G, keys=(HEARTBEAT, SESSION), until="6000", synonyms=synonyms, version=version)
    settings(broker, G, keys=None, only=KEYS, synonyms=synonyms, version=version)
    settings(broker, G, keys=("nonsense", SESSION), synonyms=synonyms, version=version)
    settings(broker, G, keys=(), only=KEYS, synonyms=synonyms, version=version)
    settings(broker, (GROUP, ""), keys=KEYS, version=version)
    settings(broker, G, (GROUP, "never"), G, keys=(HEARTBEAT,), version=version)
    if version >= 3:
        settings(broker, G, keys=KEYS, documentation=True, version=version)


@in_groups
@variants(version=(0, 1))
def story_changed(broker: Broker, version: int) -> None:
    change(broker, (G, [(SESSION, SET, "50000")]), version=version)
    until_set(broker, "50000")
    change(broker, (G, [(SESSION, SET, "51000")]), version=version, validate_only=True)
    until_set(broker, "50000")
    change(broker, (G, [(HEARTBEAT, SET, "7000"), (SESSION, DELETE, None)]), version=version)
    settings(broker, G, keys=(HEARTBEAT, SESSION), until="7000")
    change(broker, (G, [(SESSION, DELETE, None)]), version=version)
    change(broker, (G, []), version=version)
    change(broker, (G, [(HEARTBEAT, DELETE, "7000")]), version=version)
    until_set(broker, "5000", HEARTBEAT)
    change(
        broker,
        (G, [(SESSION, SET, "50000")]),
        ((GROUP, "h"), [(SESSION, SET, "many")]),
        ((GROUP, ""), [(SESSION, SET, "50000")]),
        ((TOPIC, "never"), [(SESSION, SET, "50000")]),
        version=version,
    )
    until_set(broker, "50000")
    change(broker, (G, [(SESSION, SET, "1")]), (G, [(SESSION, SET, "52000")]), version=version)
    until_set(broker, "50000")


@in_groups
@variants(validate_only=(True, False))
def story_refused_changes(broker: Broker, validate_only: bool) -> None:
    for changes in REFUSED:
        change(broker, (G, changes), validate_only=validate_only)
    change(broker, ((GROUP, ""), [(SESSION, SET, "45000")]), validate_only=validate_only)
    change(broker, (G, [(HEARTBEAT, SET, "5000")]), validate_only=validate_only)
    settings(broker, G, keys=KEYS)


@in_groups
@variants(version=(0, 1, 2))
def story_replaced(broker: Broker, version: int) -> None:
    change(broker, (G, [(SESSION, SET, "50000"), (ASSIGNMENT, SET, "7")]))
    until_set(broker, "50000")
    replace_all(broker, (G, {HEARTBEAT: "6000"}), version=version, validate_only=True)
    until_set(broker, "50000")
    replace_all(broker, (G, {HEARTBEAT: "6000"}), version=version)
    settings(broker, G, keys=(HEARTBEAT, SESSION, ASSIGNMENT), until="6000")
    for name, value in (
        (HEARTBEAT, "many"),
        (HEARTBEAT, None),
        (HEARTBEAT, "1"),
        ("nonsense", "1"),
        ("", "1"),
    ):
        replace_all(broker, (G, {name: value}), version=version)
    replace_all(broker, ((GROUP, ""), {HEARTBEAT: "6000"}), version=version)
    until_set(broker, "6000", HEARTBEAT)
    replace_all(broker, (G, {}), version=version)
    until_set(broker, "5000", HEARTBEAT)


@in_groups
@variants(version=(0, 1))
def story_listed(broker: Broker, version: int) -> None:
    """Groups with settings of their own are listed, and no others. The others' are left out."""
    topic(broker, "t")
    join_consumer(broker, "c", "m", ["t"])
    change(broker, (G, [(SESSION, SET, "50000")]), ((GROUP, "h"), [(HEARTBEAT, SET, "6000")]))
    until_set(broker, "50000")
    settings(broker, (GROUP, "h"), keys=(HEARTBEAT,), until="6000")
    resources(broker, version=version)
    if version >= 1:
        for kinds in ((GROUP,), (GROUP, TOPIC), (BROKER, GROUP, GROUP), (GROUP, 99)):
            resources(broker, *kinds, version=version)
        change(broker, (G, [(SESSION, DELETE, None)]))
        until_set(broker, "45000")
        resources(broker, GROUP, version=version)


@in_groups
@variants(version=(0, 1))
def story_what_counts_for_members(broker: Broker, version: int) -> None:
    """The interval of heartbeats, for the members of one group, from the next heartbeat on."""
    topic(broker, "t")
    join_consumer(broker, "g", "a", ["t"], version=version)
    join_consumer(broker, "h", "a", ["t"], version=version)
    change(broker, (G, [(HEARTBEAT, SET, "6000")]))
    until_set(broker, "6000", HEARTBEAT)
    beat(broker, "g", "a", 1, version=version)
    beat(broker, "h", "a", 1, version=version)
    join_consumer(broker, "g", "b", ["t"], version=version)
    change(broker, (G, [(HEARTBEAT, SET, "4")]))
    beat(broker, "g", "a", 1, version=version)
    change(broker, (G, [(HEARTBEAT, DELETE, None)]))
    until_set(broker, "5000", HEARTBEAT)
    beat(broker, "g", "b", 2, version=version)
    beat(broker, "g", "a", -1, version=version)
    beat(broker, "g", "b", -1, version=version)


@in_groups
def story_of_groups_that_are_of_no_use(broker: Broker) -> None:
    """Settings may be those of any group: a classic one, one with offsets only, a deleted one."""
    topic(broker, "t")
    commit(broker, "g", {("t", 0): 1})
    change(broker, (G, [(SESSION, SET, "50000")]))
    until_set(broker, "50000")
    long_name = "n" * 250
    change(broker, ((GROUP, long_name), [(SESSION, SET, "50000")]), validate_only=True)
    change(broker, ((GROUP, "a/b é"), [(SESSION, SET, "50000")]), validate_only=True)
