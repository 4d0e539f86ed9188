"""Subscriptions by a pattern (KIP-848): what matches, and when topics and patterns come and go."""

import random
from dataclasses import replace
from typing import Final

from odradek.protocol.apis.group import (
    DELETE_GROUPS,
    JOIN_GROUP,
    DeleteGroupsRequest,
)
from tests.judge.broker import Broker
from tests.judge.group_records import MATCHES, write_down_patterns
from tests.judge.grouping import join_request, leave, listed, told, topic
from tests.judge.migrating import enter_alone, ranged
from tests.judge.patterning import Member, describe, settle, settle_when_matched
from tests.judge.stories.topics import delete
from tests.judge.story import GROUPS, in_setup, variants

in_groups = in_setup(GROUPS)


def _words(text: str, *spaced: str) -> tuple[str, ...]:
    """Return the words of a text, and those that have a space in them."""
    return (*text.split(), *spaced)


MALFORMED: Final = _words(
    r"""
    ( @t) [ @t[ [z-a] * +t ? @t** @t{2,1} @t{1001} @t\ \8 (?z)@t (?P<n@t [[:nothing:]] \pX
    \p{Nothing} \xZZ \y
    """,
)
JAVAS: Final = _words(
    r"""
    (?=@t).* (?!@u).* (?<=@)t1 (?<!x)@t1 (@t)\1 @t\d++ @t.*+ @t?+1 (?>@t)1 (?<n>@t)\k<n>
    @t[1-9&&[^2]] @t\p{javaDigit} @t\p{IsDigit} @t\p{Digit} @t1\Z \G@t1 @t\h*1 @t1\R \u0040
    (?u)@t1 (?d)@t1
    """,
    "(?x)@t 1",
)
GOOD: Final = _words(
    r"""
    @t1 @t @.* @t. @t\d @t[[:digit:]] @t\pN @t\p{Nd} @t\p{Greek} @t[^1] @t[1]|@u @t1|@t2|@u
    (?:@)(t|u)\d? ^@t1$ \A@t1\z @t\b1 @t\B1 (?i)@T1 (?i:@T)1 (?s)@.*u (?U)@t.+ (?m)^@t2$
    (?P<n>@t)2 (?<n>@t)2 @t{1}2 @t{1,1000}2 @t+?\w \Q@\Eu @\x74\x{31} @\164\061 @u| |@u ()@u
    @[t-u]* @t[]1] @t[1-] @t\01 @u{0} (((((((((((@u))))))))))) (?P<1>@t)
    """,
    "@t1 ",
    " ",
)
PIECES: Final = _words(
    r"""
    t u 1 2 . * + ? ( ) | (t|u) (t 1) t1 t2 u [t-u] [^u] [ ] [^ [] - {1} {0,2} {2,} } {,2} ,
    \d \w \D \W \s \b \B \A \z ^ $ \ (?: (?i) (?i: (?-i) (?s (?P<n> (?P<m> (? [[:alpha:]]
    [[:^digit:] \Q \E \pL \PN \p{^Lu} \x31 \x{74} \061 \. \- \_ T U [\d] [\w-] [1-2 && # \n
    \a \Z \1 *? +? ?? é
    """,
    " ",
)
SEEDS: Final = 10
PATTERNS: Final = 40
LARGE: Final = (
    "@" + "(" * 300 + "u" + ")" * 300,
    "@" + "(" * 990 + "u" + ")" * 990,
    "@" + "(" * 1100 + "u" + ")" * 1100,
    "@((t{1,30}){1,30}){1,30}",
    "@(t{1,10}){1,99}1",
    "@[a-z]{100}|@u",
    "@[a-z]{1000}|@u",
    "@\\pL{50}|@u",
    "@\\pL{1000}|@u",
    "|".join(f"@t{number}" for number in range(40)),
    "@(" + "|".join(f"topic{number}" for number in range(400)) + "|u)",
    "@(" + "|".join(f"topic{number}" for number in range(500)) + "|u)",
)
RE2S: Final = ("(?P<n>@t)(?P<n>1)", "@\\Ct1", "@\\C*u", "@{*u", "@{+u", "@{{2,}u")

KINDS: Final = {
    "malformed": MALFORMED,
    "of java": JAVAS,
    "good": GOOD,
    "large": LARGE,
    "of re2 alone": RE2S,
}


def delete_group(broker: Broker) -> None:
    request = DeleteGroupsRequest(groups_names=(broker.wire_group("g"),))
    broker.ask("delete g", DELETE_GROUPS, 2, request, lambda response: told(broker, response))


def topics(broker: Broker) -> None:
    topic(broker, "t1", 2)
    topic(broker, "t2")
    topic(broker, "u")


@in_groups
def story_a_pattern_alone(broker: Broker) -> None:
    topics(broker)
    a = Member(broker, "a")
    a.join(pattern="@t.*")
    settle(broker, {a: "t1-0,1 t2-0"})
    describe(broker)
    a.change(pattern="@t.*")
    a.change()
    settle(broker, {a: "t1-0,1 t2-0"})
    a.leave()
    describe(broker)
    write_down_patterns(broker)


@in_groups
def story_topics_that_come_and_go(broker: Broker) -> None:
    """A pattern follows them, with names beside it and without, and if nothing matched at first."""
    topics(broker)
    a, b, c = Member(broker, "a"), Member(broker, "b", "h"), Member(broker, "c", "i")
    a.join(pattern="@t.*")
    b.join(["u", "t2"], "@t1")
    c.join(pattern="@v.*")
    settle(broker, {a: "t1-0,1 t2-0", b: "t1-0,1 t2-0 u-0", c: ""})
    topic(broker, "t3")
    topic(broker, "v1")
    settle(broker, {a: "t1-0,1 t2-0 t3-0", b: "t1-0,1 t2-0 u-0", c: "v1-0"})
    for group in "ghi":
        describe(broker, group)
    write_down_patterns(broker)
    delete(broker, "t2")
    delete(broker, "v1")
    settle(broker, {a: "t1-0,1 t3-0", b: "t1-0,1 u-0", c: ""})
    delete(broker, "t1")
    topic(broker, "t1")
    settle(broker, {a: "t1-0 t3-0", b: "t1-0 u-0", c: ""})
    for group in "ghi":
        describe(broker, group)


@in_groups
def story_a_pattern_and_names(broker: Broker) -> None:
    topics(broker)
    a = Member(broker, "a")
    a.join(["u", "never"], "@t1")
    settle(broker, {a: "t1-0,1 u-0"})
    describe(broker)
    a.change(names=["t1"])
    settle(broker, {a: "t1-0,1"})
    a.change(names=[])
    settle(broker, {a: "t1-0,1"})
    a.change(names=["u"], pattern="@t2")
    settle(broker, {a: "t2-0 u-0"})
    describe(broker)
    a.change(pattern="")
    settle(broker, {a: "u-0"})
    describe(broker)
    a.change(names=[], pattern="")
    settle(broker, {a: ""})
    describe(broker)
    a.leave()
    write_down_patterns(broker)


@in_groups
def story_a_pattern_that_is_taken_away(broker: Broker) -> None:
    """Null leaves it as it is, an empty one takes it away."""
    topics(broker)
    a = Member(broker, "a")
    a.join(pattern="@t.*")
    settle(broker, {a: "t1-0,1 t2-0"})
    a.change(names=["u"])
    settle(broker, {a: "t1-0,1 t2-0 u-0"})
    a.change(names=None, pattern="")
    settle(broker, {a: "u-0"})
    a.join(names=["t2"])
    settle(broker, {a: "t2-0"})
    write_down_patterns(broker)


@in_groups
def story_a_member_that_joins_again(broker: Broker) -> None:
    """What it does not send is as it was."""
    topics(broker)
    a = Member(broker, "a")
    a.join(["u"], "@t.*")
    settle(broker, {a: "t1-0,1 t2-0 u-0"})
    a.join(names=["never"])
    settle(broker, {a: "t1-0,1 t2-0"})
    a.join(pattern="@t.*")
    settle(broker, {a: "t1-0,1 t2-0"})
    a.join(["u"], "")
    settle(broker, {a: "u-0"})
    a.join()
    describe(broker)
    write_down_patterns(broker)


@in_groups
def story_empty_patterns(broker: Broker) -> None:
    topics(broker)
    a, b = Member(broker, "a"), Member(broker, "b", "h")
    a.join(pattern="")
    describe(broker)
    b.join(["u"], "")
    settle(broker, {b: "u-0"})
    describe(broker, "h")
    b.change(pattern="@t2")
    settle(broker, {b: "t2-0 u-0"})
    write_down_patterns(broker)


@in_groups
def story_the_pattern_of_another_member(broker: Broker) -> None:
    """It is matched already. It is kept until the last member gives it up."""
    topics(broker)
    a, b = Member(broker, "a"), Member(broker, "b")
    a.join(pattern="@t1")
    settle(broker, {a: "t1-0,1"})
    b.join(pattern="@t1")
    settle(broker, {a: "t1-0", b: "t1-1"})
    a.change(["u"], "")
    settle(broker, {a: "u-0", b: "t1-0,1"})
    describe(broker)
    a.change([], "@t1")
    settle(broker, {b: "t1-0", a: "t1-1"})
    b.leave()
    settle(broker, {a: "t1-0,1"})
    a.leave()
    describe(broker)
    write_down_patterns(broker)


@in_groups
def story_two_patterns(broker: Broker) -> None:
    topics(broker)
    a, b = Member(broker, "a"), Member(broker, "b")
    a.join(pattern="@t1")
    settle(broker, {a: "t1-0,1"})
    b.join(pattern="@(t2|u)")
    settle(broker, {a: "t1-0,1", b: "t2-0 u-0"})
    describe(broker)
    write_down_patterns(broker)


@in_groups
def story_a_static_member(broker: Broker) -> None:
    """It comes back with its pattern, a bad one, another one, and none at all."""
    topics(broker)
    a, b = Member(broker, "a", instance="i"), Member(broker, "b", instance="i")
    a.join(pattern="@t.*")
    settle(broker, {a: "t1-0,1 t2-0"})
    a.leave(-2)
    b.join(pattern="@t.*")
    settle(broker, {b: "t1-0,1 t2-0"})
    describe(broker)
    b.leave(-2)
    a.join(pattern="(")
    describe(broker)
    a.join(["u"])
    settle(broker, {a: "t1-0,1 t2-0 u-0"})
    a.leave(-2)
    b.join([], "@(t1|u)")
    settle(broker, {b: "t1-0,1 u-0"})
    describe(broker)
    b.leave(-2)
    a.join(["u"], "")
    settle(broker, {a: "u-0"})
    describe(broker)
    write_down_patterns(broker, [MATCHES])


@in_groups
def story_members_that_are_removed(broker: Broker) -> None:
    """The pattern of the last member with it is removed, too."""
    topics(broker)
    a, b = Member(broker, "a", instance="i"), Member(broker, "b", instance="j")
    a.join(pattern="@t1")
    settle(broker, {a: "t1-0,1"})
    b.join(pattern="@t1")
    settle(broker, {a: "t1-0", b: "t1-1"})
    leave(broker, "g", ("", "i"))
    settle(broker, {b: "t1-0,1"})
    write_down_patterns(broker)
    leave(broker, "g", ("b", "j"))
    describe(broker)
    b.join(["u"], "@t1")
    settle(broker, {b: "t1-0,1 u-0"})
    b.leave()
    delete_group(broker)
    a.join(["u"])
    settle(broker, {a: "u-0"})
    write_down_patterns(broker)


@in_groups
def story_a_group_that_is_classic_before_and_after(broker: Broker) -> None:
    topics(broker)
    old = enter_alone(broker, "g", {"u": [0]})
    a = Member(broker, "a")
    a.join(pattern="@t.*")
    leave(broker, "g", old)
    settle(broker, {a: "t1-0,1 t2-0"})
    request = join_request(broker, "g", protocols=ranged(broker, "u"))
    classic = broker.line.ask(JOIN_GROUP, 9, request).member_id
    broker.line.ask(JOIN_GROUP, 9, replace(request, member_id=classic))
    write_down_patterns(broker, [MATCHES])
    a.leave()
    listed(broker)
    write_down_patterns(broker, [MATCHES])


@in_groups
def story_members_that_are_fenced(broker: Broker) -> None:
    """An older epoch is no reason to look at the pattern, nor is an unknown member."""
    topics(broker)
    a, b = Member(broker, "a"), Member(broker, "b")
    a.join(pattern="@t1")
    settle(broker, {a: "t1-0,1"})
    a.epoch += 5
    a.change(pattern="(")
    a.change(pattern="@u")
    b.epoch = 1
    b.change(pattern="@t2")
    b.change(pattern="(")
    Member(broker, "c", "never").leave()
    for member in ("b", "c", "d"):
        Member(broker, member).join(pattern="@t1")
    e = Member(broker, "e")
    e.join(pattern="(")
    e.join(pattern="@t2")
    describe(broker)
    write_down_patterns(broker)


@in_groups
def story_internal_topics(broker: Broker) -> None:
    topics(broker)
    for number, pattern in enumerate(("__consumer_offsets", "__.*", "__transaction_state|@u")):
        member = Member(broker, "a", f"g{number}")
        member.join(pattern=pattern)
        settle_when_matched(broker, member, pattern)
        broker.say(f"and {member.owned_elsewhere} partitions of internal topics")


@in_groups
def story_patterns_that_are_none(broker: Broker) -> None:
    """They are refused, and what the member has stays."""
    topics(broker)
    member = Member(broker, "a")
    member.join(pattern="@t1")
    settle(broker, {member: "t1-0,1"})
    for pattern in ("(", "[", "*", "@t{2,1}", "\\8", "(?=@t).*"):
        Member(broker, "b", "h").join(pattern=pattern)
        member.change(pattern=pattern)
    member.change(["u"], "(")
    describe(broker, "h")
    describe(broker)
    settle(broker, {member: "t1-0,1"})
    write_down_patterns(broker)


@in_groups
@variants(kind=KINDS)
def story_syntax(broker: Broker, kind: str) -> None:
    topics(broker)
    for number, pattern in enumerate(KINDS[kind]):
        member = Member(broker, "a", f"g{number}")
        if member.join(pattern=pattern) == 0:
            settle_when_matched(broker, member, pattern)


@in_groups
@variants(seed=range(SEEDS))
def story_random_syntax(broker: Broker, seed: int) -> None:
    """Most are malformed. Only what matches of the story's own topics is recorded."""
    topics(broker)
    choice = random.Random(seed)
    for number in range(PATTERNS):
        member = Member(broker, "a", f"g{number}")
        pattern = "@" + "".join(choice.choices(PIECES, k=choice.randint(1, 7)))
        if member.join(pattern=pattern) == 0:
            settle_when_matched(broker, member, pattern)
            member.leave()
