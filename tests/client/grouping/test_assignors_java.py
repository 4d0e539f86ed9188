"""The assignors, and what they write into a subscription, beside those of the Java client."""

import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from odradek.client.grouping.assignors import Assignment, Subscriber
from odradek.client.grouping.subscriptions import ASSIGNORS, JoinClaim, protocols_of
from odradek.client.types import ASSIGNOR_NAMES, AssignorName, TopicPartition
from tests.peers.jars import QUICK_JAVA, kafka_jars
from tests.programs import running

PROGRAM: Final = Path(__file__).parent / "java" / "Assignors.java"
CASES: Final = 150
TOPICS: Final = ("a", "b", "c")

Ask = Callable[[Sequence[str]], list[str]]
Case = tuple[dict[str, int], list[Subscriber]]

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def asked_of_java() -> Iterator[Ask]:
    """Return what asks Java's assignors, in one JVM: a line for each answer."""
    with running(
        [*QUICK_JAVA, "-cp", f"{kafka_jars()}/*", str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=1,
    ) as process:

        def ask(lines: Sequence[str]) -> list[str]:
            assert process.stdin is not None
            assert process.stdout is not None
            answers = []
            for line in lines:
                process.stdin.write(f"{line}\n")
                answers.append(process.stdout.readline().removesuffix("\n"))
                assert answers[-1], line
            return answers

        yield ask


def written(partitions: Sequence[TopicPartition]) -> str:
    return ",".join(f"{topic}:{number}" for topic, number in partitions)


def question(name: AssignorName, counts: dict[str, int], members: Sequence[Subscriber]) -> str:
    words = ["assign", name, ",".join(f"{topic}={count}" for topic, count in counts.items())]
    for member in members:
        instance = member.group_instance_id or ""
        topics = ",".join(sorted(member.topics))
        claim = f"{member.generation}/{written(member.owned)}"
        words.append(f"{member.member_id}/{instance}/{topics}/{claim}")
    return " ".join(words)


def read(answer: str) -> Assignment:
    found: Assignment = {}
    for word in answer.split(" "):
        member_id, _, names = word.partition("=")
        places = [name.split(":") for name in names.split(",") if name]
        found[member_id] = [TopicPartition(topic, int(number)) for topic, number in places]
    return found


def random_case(rng: random.Random, *, alike: bool) -> Case:
    counts = {topic: rng.randint(1, 7) for topic in TOPICS}
    members = []
    for number in range(rng.randint(1, 6)):
        topics = TOPICS if alike else rng.sample(TOPICS, rng.randint(1, 3))
        instance = f"i{rng.randint(0, 99)}-{number}" if rng.random() < 0.3 else None
        members.append(
            Subscriber(member_id=f"m{number}", topics=frozenset(topics), group_instance_id=instance)
        )
    return counts, members


def sizes(found: Assignment) -> list[int]:
    return sorted(len(partitions) for partitions in found.values())


def kept(members: Sequence[Subscriber], found: Assignment) -> int:
    return sum(len(set(member.owned) & set(found[member.member_id])) for member in members)


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_the_plain_assignors_are_javas(asked_of_java: Ask, name: AssignorName) -> None:
    rng = random.Random(1)
    cases = [random_case(rng, alike=False) for _ in range(CASES)]
    answers = asked_of_java([question(name, *case) for case in cases])
    for case, answer in zip(cases, answers, strict=True):
        assert {k: sorted(v) for k, v in ASSIGNORS[name](*case).items()} == {
            k: sorted(v) for k, v in read(answer).items()
        }, case


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_the_sticky_assignors_are_as_even_as_javas_and_keep_as_much(
    asked_of_java: Ask, name: AssignorName
) -> None:
    """The members have the partitions of an earlier generation, when there were others."""
    rng = random.Random(2)
    cases: list[Case] = []
    for _ in range(CASES):
        counts, members = random_case(rng, alike=True)
        before = ASSIGNORS["sticky"](counts, members)
        there = [
            Subscriber(
                member_id=member.member_id,
                topics=member.topics,
                owned=tuple(before[member.member_id]),
                generation=3,
            )
            for member in members
            if rng.random() < 0.7
        ]
        there += [
            Subscriber(member_id=f"new{number}", topics=frozenset(TOPICS))
            for number in range(rng.randint(0 if there else 1, 2))
        ]
        cases.append((counts, there))
    answers = asked_of_java([question(name, *case) for case in cases])
    for case, answer in zip(cases, answers, strict=True):
        ours, javas = ASSIGNORS[name](*case), read(answer)
        if name == "sticky":
            assert sizes(ours) == sizes(javas), case
        # Of the cooperative one this is the first half: what moves is given to nobody yet.
        assert sum(sizes(ours)) == sum(sizes(javas)), case
        assert kept(case[1], ours) == kept(case[1], javas), case


@pytest.mark.parametrize("generation", [-1, 7])
def test_a_subscription_is_written_byte_for_byte_as_java_writes_it(
    asked_of_java: Ask, generation: int
) -> None:
    owned = () if generation < 0 else (TopicPartition("a", 0), TopicPartition("b", 1))
    claim = JoinClaim(topics=("b", "a"), owned=owned, previous=owned, generation=generation)
    lines = [f"subscription {name} a,b {generation} {written(owned)}" for name in ASSIGNOR_NAMES]
    javas = dict(zip(ASSIGNOR_NAMES, asked_of_java(lines), strict=True))
    ours = {name: protocols_of([name], claim)[0].metadata.hex() for name in ASSIGNOR_NAMES}
    assert ours == javas
