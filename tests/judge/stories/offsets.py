"""TxnOffsetCommit at every version: in every state, by everybody, and for groups with members."""

from odradek.protocol.apis.group import (
    JOIN_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from tests.judge.broker import Broker, Identity
from tests.judge.situations import HELD, RELATIONS, TOPIC, reach, related, setup_of, situations
from tests.judge.story import in_setup, kept_in, variants

VERSIONS = range(6)
MEMBERS_FROM = 3
ADDS_FROM = 5
GROUP = "g"


@kept_in("offsets_cells.txt.gz")
@in_setup(setup_of)
@variants(situation=situations(), version=VERSIONS)
def story_cells(broker: Broker, situation: str, version: int) -> None:
    """Without AddOffsetsToTxn, and after it."""
    broker.topic(TOPIC)
    for relation in RELATIONS:
        state = reach(broker, relation, situation)
        producer = related(state, relation)
        broker.commit_offsets(relation, producer, relation, {(TOPIC, 0): 5}, version=version)
        broker.add_offsets(relation, state, relation)
        broker.commit_offsets(relation, producer, relation, {(TOPIC, 0): 6}, version=version)
        broker.committed(relation, [(TOPIC, 0)], stable=True)
        if not situation.startswith(HELD):
            broker.end(relation, state, commit=True)
            broker.committed(relation, [(TOPIC, 0)], stable=True)


def begin(broker: Broker, version: int, group: str = GROUP) -> Identity:
    producer = broker.init("x")
    if version < ADDS_FROM:
        broker.add_offsets("x", producer, group)
    return producer


def finish(broker: Broker, producer: Identity, version: int, *, commit: bool = True) -> None:
    broker.end("x", producer, commit=commit, version=5 if version == ADDS_FROM else 3)
    broker.committed(GROUP, [(TOPIC, 0)], stable=True)


@variants(version=VERSIONS)
def story_unknown_among_known(broker: Broker, version: int) -> None:
    broker.topic(TOPIC)
    producer = begin(broker, version)
    offsets = {(TOPIC, 0): 5, (TOPIC, 1): 6, ("nowhere", 0): 7}
    broker.commit_offsets("x", producer, GROUP, offsets, version=version)
    broker.commit_offsets("x", producer, GROUP, {}, version=version)
    finish(broker, producer, version)


@variants(version=VERSIONS)
def story_negative_offset(broker: Broker, version: int) -> None:
    broker.topic(TOPIC)
    producer = begin(broker, version)
    broker.commit_offsets("x", producer, GROUP, {(TOPIC, 0): -1}, version=version)
    finish(broker, producer, version)


@variants(version=VERSIONS)
def story_empty_names(broker: Broker, version: int) -> None:
    broker.topic(TOPIC)
    producer = begin(broker, version, "")
    broker.commit_offsets("x", producer, "", {(TOPIC, 0): 5}, version=version)
    broker.commit_offsets("", producer, GROUP, {(TOPIC, 0): 5}, version=version)
    finish(broker, producer, version)


@variants(version=VERSIONS, commit=(True, False))
def story_last_one_wins(broker: Broker, version: int, commit: bool) -> None:
    broker.topic(TOPIC)
    producer = begin(broker, version)
    broker.commit_offsets("x", producer, GROUP, {(TOPIC, 0): 70}, version=version)
    broker.commit_offsets("x", producer, GROUP, {(TOPIC, 0): 60}, version=version)
    broker.committed(GROUP, [(TOPIC, 0)])
    broker.committed(GROUP, [(TOPIC, 0)], stable=True)
    finish(broker, producer, version, commit=commit)


@variants(version=range(MEMBERS_FROM, 6))
def story_members_of_no_group(broker: Broker, version: int) -> None:
    broker.topic(TOPIC)
    producer = begin(broker, version)
    offsets = {(TOPIC, 0): 5}
    broker.commit_offsets("x", producer, GROUP, offsets, version=version, generation=1, member="m")
    broker.commit_offsets("x", producer, GROUP, offsets, version=version, generation=0)
    broker.commit_offsets("x", producer, GROUP, offsets, version=version, member="m")
    broker.commit_offsets("x", producer, GROUP, offsets, version=version, generation=1)
    broker.commit_offsets("x", producer, GROUP, offsets, version=version, instance="i")
    finish(broker, producer, version)


def join(broker: Broker, *, instance: str | None = None) -> str:
    """Join the group alone, without syncing; the member id."""
    member = ""
    for _ in range(2):  # the first answer may only give the member id
        request = JoinGroupRequest(
            group_id=broker.names.on_wire(GROUP),
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
        )
        response = broker.ask(f"join {GROUP}", JOIN_GROUP, 7, request)
        member = response.member_id
        if response.error_code == 0:
            break
    return member


@variants(version=range(MEMBERS_FROM, 6), instance=("none", "static"))
def story_members(broker: Broker, version: int, instance: str) -> None:
    """Each part of a member's claim, wrong by itself."""
    broker.topic(TOPIC)
    name = None if instance == "none" else "i"
    member = join(broker, instance=name)
    producer = begin(broker, version)
    offsets = {(TOPIC, 0): 5}
    for generation in (1, 0, 2, -1):
        for claimed in (member, "", "stranger"):
            for said in (None, "i", "j"):
                broker.commit_offsets(
                    "x",
                    producer,
                    GROUP,
                    offsets,
                    version=version,
                    generation=generation,
                    member=claimed,
                    instance=said,
                )
    finish(broker, producer, version)


@variants(version=range(MEMBERS_FROM))
def story_a_group_with_members_and_an_old_client(broker: Broker, version: int) -> None:
    broker.topic(TOPIC)
    join(broker)
    producer = begin(broker, version)
    broker.commit_offsets("x", producer, GROUP, {(TOPIC, 0): 5}, version=version)
    finish(broker, producer, version)
