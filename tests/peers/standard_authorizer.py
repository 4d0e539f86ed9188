"""Our decisions about random ACL entries, and those of Kafka's own class.

`python -m tests.peers.standard_authorizer --lists 2000 --seed 1` asks both, and prints where they
differ. A list of entries is drawn from its seed alone, so that one can be asked again. Its names,
prefixes, hosts and principals are few, so that many entries are about one question. After a third
of the entries has been removed, both are asked again (CVE-2024-27309).

One difference is known: an entry for `*` is about every resource here, and for Kafka not about one
whose name begins with a star and is longer.
"""

import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from odradek.broker.security.access import Authorizer
from odradek.broker.security.acl_table import AclTable, AclTableBuilder, ResourceAcls
from odradek.broker.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourceKind,
    ResourcePattern,
)
from odradek.broker.security.principal import parse_principal
from odradek.broker.security.rights import Right
from tests.peers import jars

AGENT: Final = Path(__file__).parent / "StandardAuthorizerAgent.java"
ROOT: Final = "User:root"
PRINCIPALS: Final = (
    "User:alice",
    "User:alice2",
    "User:bob",
    ROOT,
    "Group:alice",
    "User:CN=a,O=b:c",
)
HOSTS: Final = ("127.0.0.1", "10.0.0.7", "0:0:0:0:0:0:0:1")
NAMES: Final = ("t", "t1", "t12", "t2", "ta", "tab", "*", "*t", "u", "hardcode", "h", "ä")
KINDS: Final = (
    ResourceKind.TOPIC,
    ResourceKind.GROUP,
    ResourceKind.TRANSACTIONAL_ID,
    ResourceKind.CLUSTER,
)
ENTRY_OPERATIONS: Final = tuple(each for each in AclOperation if each >= AclOperation.ALL)
ASKED_OPERATIONS: Final = tuple(each for each in AclOperation if each > AclOperation.ALL)
ENTRIES_MAX: Final = 14
QUESTIONS: Final = 14
QUESTIONS_OF_ANY: Final = 6

Binding = tuple[ResourcePattern, AclEntry]


@dataclass(frozen=True, slots=True)
class Question:
    """May a principal at a host do something to a resource? Without a name: to any of its kind."""

    principal: str
    host: str
    right: Right
    name: str | None

    @property
    def line(self) -> str:
        command = "may_some" if self.name is None else "may"
        asked = (
            command,
            self.principal,
            self.host,
            self.right.operation.name,
            self.right.kind.name,
        )
        return "\t".join((*asked, *([] if self.name is None else [self.name])))

    def ask(self, authorizer: Authorizer) -> bool:
        principal = parse_principal(self.principal)
        if self.name is None:
            return authorizer.allows_some(principal, self.host, self.right)
        return authorizer.decide(principal, self.host, self.right, self.name).is_allowed


@dataclass(frozen=True, slots=True)
class Drawn:
    """A list of entries with questions about it. `removed` is a part of the entries."""

    seed: str
    allows_unknown: bool
    entries: tuple[Binding, ...]
    removed: tuple[Binding, ...]
    questions: tuple[Question, ...]

    @property
    def states(self) -> Iterator[list[Binding]]:
        yield list(self.entries)
        yield [each for each in self.entries if each not in self.removed]

    @property
    def lines(self) -> Iterator[str]:
        yield f"begin\t{ROOT}\t{str(self.allows_unknown).lower()}"
        asked = [question.line for question in self.questions]
        yield from (f"add\t{_said(each)}" for each in self.entries)
        yield from asked
        yield from (f"remove\t{_said(each)}" for each in self.removed)
        yield from asked


def draw(seed: str) -> Drawn:
    """Draw entries and questions about a few kinds and operations, so that many of them meet."""
    rng = random.Random(seed)
    kinds = rng.sample(KINDS, 2)
    some = [*rng.sample(ASKED_OPERATIONS, 4), AclOperation.DESCRIBE, AclOperation.READ]
    entries = {
        _binding(rng, rng.choice(kinds), rng.choice([*some, *some, *ENTRY_OPERATIONS])): None
        for _ in range(rng.randint(0, ENTRIES_MAX))
    }
    questions = [
        Question(
            rng.choice(PRINCIPALS),
            rng.choice(HOSTS),
            Right(rng.choice(some), kind := rng.choice(kinds)),
            _name(rng, kind),
        )
        for _ in range(QUESTIONS)
    ]
    questions += [
        Question(
            rng.choice(PRINCIPALS),
            rng.choice(HOSTS),
            Right(rng.choice(some), rng.choice(kinds)),
            None,
        )
        for _ in range(QUESTIONS_OF_ANY)
    ]
    removed = rng.sample(list(entries), len(entries) // 3)
    return Drawn(seed, rng.random() < 0.3, tuple(entries), tuple(removed), tuple(questions))


def _binding(rng: random.Random, kind: ResourceKind, operation: AclOperation) -> Binding:
    pattern = rng.choice([PatternType.LITERAL, PatternType.PREFIXED])
    principal = rng.choice([*PRINCIPALS[:2], "User:*", rng.choice(PRINCIPALS)])
    host = rng.choice(["*", "*", rng.choice(HOSTS)])
    permission = rng.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY])
    resource = ResourcePattern(kind, pattern, _name(rng, kind))
    return resource, AclEntry(principal, host, operation, permission)


def _name(rng: random.Random, kind: ResourceKind) -> str:
    return CLUSTER_NAME if kind is ResourceKind.CLUSTER else rng.choice(NAMES)


def _said(binding: Binding) -> str:
    resource, entry = binding
    of_resource = (resource.kind.name, resource.pattern.name, resource.name)
    of_entry = (entry.principal, entry.host, entry.operation.name, entry.permission.name)
    return "\t".join((*of_resource, *of_entry))


def our_answers(drawn: Drawn, *, stars_apart: bool = False) -> list[bool]:
    """Return our answers before and after some of the entries have been removed.

    `stars_apart`: for names such as `*t` without the entries for `*`, which Kafka leaves out there.
    """
    found = []
    every, but_stars = AclTableBuilder(), AclTableBuilder()
    for bindings in drawn.states:
        for pattern in dict.fromkeys(resource for resource, _ in drawn.entries):
            entries = [entry for resource, entry in bindings if resource == pattern]
            acls = ResourceAcls(entries) if entries else None
            every.put(pattern, acls)
            if (pattern.pattern, pattern.name) != (PatternType.LITERAL, WILDCARD):
                but_stars.put(pattern, acls)
        for question in drawn.questions:
            is_apart = stars_apart and question.name is not None and question.name[:-1] == WILDCARD
            table = (but_stars if is_apart else every).table
            found.append(question.ask(_authorizer(drawn, table)))
    return found


def _authorizer(drawn: Drawn, table: AclTable) -> Authorizer:
    return Authorizer(
        is_on=True,
        super_users=[parse_principal(ROOT)],
        allows_unknown=drawn.allows_unknown,
        table=lambda: table,
        is_current=lambda: True,
    )


def kafkas_answers(lists: Iterable[Drawn]) -> Iterator[list[bool]]:
    """Yield the answers of Kafka's class to each list."""
    several = list(lists)
    finished = subprocess.run(
        [*jars.QUICK_JAVA, "-Xmx256m", "-cp", f"{jars.kafka_jars()}/*", str(AGENT)],
        input="".join(f"{line}\n" for each in several for line in each.lines),
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    )
    answers = iter(finished.stdout.split())
    for each in several:
        yield [next(answers) == "ALLOWED" for _ in range(2 * len(each.questions))]
    assert next(answers, None) is None


def differences(lists: Iterable[Drawn]) -> list[str]:
    """Return a line for each question that is answered differently, with its list's seed."""
    several = list(lists)
    found = []
    for drawn, theirs in zip(several, kafkas_answers(several), strict=True):
        questions = [question.line for question in drawn.questions] * 2
        ours_here = our_answers(drawn, stars_apart=True)
        for asked, kafka, ours in zip(questions, theirs, ours_here, strict=True):
            if kafka != ours:
                found.append(f"seed {drawn.seed}: {asked!r}: Kafka {kafka}, ours {ours}")
    return found


def drawn_lists(seed: int, count: int) -> list[Drawn]:
    return [draw(f"{seed}/{number}") for number in range(count)]


@click.command()
@click.option("--lists", "count", default=2_000, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(count: int, seed: int) -> None:
    """Compare our authoriser with Kafka's class on random lists of entries."""
    lists = drawn_lists(seed, count)
    found = differences(lists)
    for line in found:
        click.echo(line)
    asked = sum(2 * len(each.questions) for each in lists)
    click.echo(f"{count} lists of seed {seed}, {asked} questions, {len(found)} differences")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
