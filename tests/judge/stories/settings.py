"""Settings of topics and brokers: described, changed, replaced, and refused."""

from typing import Final

from tests.judge.administering import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC,
    change,
    replace_all,
    resources,
    settings,
)
from tests.judge.broker import Broker
from tests.judge.story import variants

T: Final = (TOPIC, "t")
NODE: Final = (BROKER, "1")
ALL: Final = (BROKER, "")
RETENTION: Final = "retention.ms"
POLICY: Final = "cleanup.policy"
KEYS: Final = (
    POLICY,
    RETENTION,
    "retention.bytes",
    "max.message.bytes",
    "segment.bytes",
    "message.timestamp.type",
    "delete.retention.ms",
    "min.cleanable.dirty.ratio",
)
GROUP_TYPE: Final = 32


@variants(version=(1, 2, 3, 4), synonyms=(True, False), documentation=(True, False))
def story_described(broker: Broker, version: int, synonyms: bool, documentation: bool) -> None:
    broker.topic("t", configs={RETENTION: "5000", POLICY: "compact"})
    settings(
        broker,
        T,
        keys=KEYS,
        synonyms=synonyms,
        documentation=documentation and version >= 3,
        version=version,
    )


@variants(version=(1, 4))
def story_described_that_are_not_there(broker: Broker, version: int) -> None:
    broker.topic("t")
    settings(broker, T, keys=("nonsense", RETENTION), version=version)
    settings(broker, T, keys=(), only=KEYS, version=version)
    settings(broker, (TOPIC, "never"), keys=None, version=version)
    settings(broker, (TOPIC, ""), keys=None, version=version)
    settings(broker, (TOPIC, "a/b"), keys=None, version=version)
    settings(broker, (BROKER, "2"), keys=(), version=version)
    settings(broker, (BROKER, "x"), keys=(), version=version)
    settings(broker, (BROKER, "-1"), keys=(), version=version)
    settings(broker, ALL, keys=(), version=version)
    settings(broker, NODE, keys=("log.retention.bytes", "nonsense"), version=version)
    settings(broker, (0, "t"), keys=(), version=version)
    settings(broker, (99, "t"), keys=(), version=version)
    settings(broker, T, (TOPIC, "never"), T, keys=(RETENTION,), version=version)


@variants(version=(0, 1))
def story_changed(broker: Broker, version: int) -> None:
    broker.topic("t")
    week = "604800000"
    change(broker, (T, [(RETENTION, SET, "7000")]), version=version)
    settings(broker, T, keys=(RETENTION,), until="7000")
    change(broker, (T, [(RETENTION, SET, "8000")]), version=version, validate_only=True)
    settings(broker, T, keys=(RETENTION,), until="7000")
    change(broker, (T, [(RETENTION, DELETE, None)]), version=version)
    change(broker, (T, [(RETENTION, DELETE, "7000")]), version=version)
    settings(broker, T, keys=(RETENTION,), until=week)
    change(broker, (T, [(POLICY, APPEND, "compact")]), version=version)
    settings(broker, T, keys=(POLICY,), until="delete,compact")
    change(broker, (T, [(POLICY, APPEND, "compact")]), version=version)
    change(broker, (T, [(POLICY, SUBTRACT, "delete")]), version=version)
    settings(broker, T, keys=(POLICY,), until="compact")
    change(broker, (T, [(POLICY, SUBTRACT, "delete")]), version=version)
    change(broker, (T, [(POLICY, SET, "delete"), (RETENTION, SET, "1")]), version=version)
    settings(broker, T, keys=(POLICY, RETENTION), until="delete")
    change(broker, (T, []), version=version)


@variants(validate_only=(True, False))
def story_refused_changes(broker: Broker, validate_only: bool) -> None:
    broker.topic("t")
    for changes in (
        [("nonsense", SET, "1")],
        [("nonsense", DELETE, None)],
        [(RETENTION, SET, "many")],
        [(RETENTION, SET, "")],
        [(RETENTION, SET, None)],
        [(RETENTION, SET, "-2")],
        [(RETENTION, SET, " 5 ")],
        [(RETENTION, APPEND, "1")],
        [(RETENTION, SUBTRACT, "1")],
        [(RETENTION, SET, "1"), (RETENTION, SET, "2")],
        [(RETENTION, SET, "1"), (RETENTION, DELETE, None)],
        [(POLICY, SET, "sometimes")],
        [(POLICY, APPEND, "sometimes")],
        [(POLICY, APPEND, None)],
        [("min.insync.replicas", SET, "0")],
        [("min.cleanable.dirty.ratio", SET, "1.1")],
        [("segment.bytes", SET, "10")],
        [("message.timestamp.type", SET, "never")],
        [("", SET, "1")],
        [("log.retention.ms", SET, "1")],
    ):
        change(broker, (T, changes), validate_only=validate_only)
    for resource in ((TOPIC, "never"), (TOPIC, ""), (TOPIC, "a/b"), (0, "t"), (99, "t")):
        change(broker, (resource, [(RETENTION, SET, "1")]), validate_only=validate_only)
    change(
        broker,
        (T, [(RETENTION, SET, "1")]),
        (T, [(RETENTION, SET, "2")]),
        ((TOPIC, "never"), [(RETENTION, SET, "1")]),
        validate_only=validate_only,
    )
    change(broker, validate_only=validate_only)
    settings(broker, T, keys=(RETENTION, POLICY))


@variants(version=(0, 1, 2))
def story_replaced(broker: Broker, version: int) -> None:
    broker.topic("t", configs={RETENTION: "5000", POLICY: "compact"})
    replace_all(broker, (T, {"retention.bytes": "77"}), version=version)
    settings(broker, T, keys=("retention.bytes", RETENTION, POLICY), until="77")
    replace_all(broker, (T, {RETENTION: "1"}), version=version, validate_only=True)
    settings(broker, T, keys=(RETENTION, "retention.bytes", POLICY))
    replace_all(broker, (T, {RETENTION: "many"}), version=version)
    replace_all(broker, (T, {RETENTION: None}), version=version)
    replace_all(broker, (T, {"nonsense": "1"}), version=version)
    replace_all(broker, ((TOPIC, "never"), {RETENTION: "1"}), version=version)
    replace_all(broker, ((TOPIC, ""), {RETENTION: "1"}), version=version)
    replace_all(broker, ((99, "t"), {RETENTION: "1"}), version=version)
    replace_all(broker, (T, {}), version=version)
    settings(broker, T, keys=("retention.bytes", RETENTION, POLICY), until="-1")


LIVE: Final = "log.cleaner.delete.retention.ms"


def story_of_brokers(broker: Broker) -> None:
    """A value of one broker counts before that of all of them."""
    day = "86400000"
    settings(broker, NODE, ALL, keys=(LIVE,))
    change(broker, (ALL, [(LIVE, SET, "81000000")]))
    settings(broker, NODE, ALL, keys=(LIVE,), until="81000000")
    change(broker, (NODE, [(LIVE, SET, "82000000")]))
    settings(broker, NODE, ALL, keys=(LIVE,), until="82000000")
    broker.topic("t")
    settings(broker, T, keys=("delete.retention.ms",))
    change(broker, (NODE, [(LIVE, SET, "83000000")]), validate_only=True)
    change(broker, (NODE, [(LIVE, DELETE, None)]))
    settings(broker, NODE, keys=(LIVE,), until="81000000")
    change(broker, (ALL, [(LIVE, DELETE, None)]))
    settings(broker, NODE, ALL, keys=(LIVE,), until=day)


def story_refused_changes_of_brokers(broker: Broker) -> None:
    for resource in (NODE, ALL, (BROKER, "2"), (BROKER, "x")):
        for changes in (
            [("node.id", SET, "7")],
            [("num.partitions", SET, "9")],
            [(LIVE, SET, "many")],
            [(LIVE, SET, None)],
            [(LIVE, APPEND, "1")],
            [(LIVE, DELETE, None)],
            [(LIVE, SET, "1"), (LIVE, SET, "2")],
        ):
            change(broker, (resource, changes), validate_only=True)
    settings(broker, NODE, ALL, keys=(LIVE,))


@variants(version=(0, 1))
def story_listed(broker: Broker, version: int) -> None:
    broker.topic("t")
    resources(broker, version=version)
    if version >= 1:
        for kinds in ((TOPIC,), (BROKER,), (TOPIC, BROKER, TOPIC), (8,), (16,), (99,), (0,)):
            resources(broker, *kinds, version=version)
