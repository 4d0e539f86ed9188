"""The matchers of the answers that differ from Kafka's on purpose: the whole list.

What differs, and why, is in the headers of the API modules, from which docs/differences.md is made.
Each matcher has the title of an item there.

A difference that is not here fails the comparison, and so does one that is here and that no story
meets any more. A matcher is narrow: it names the stories, Kafka's line and ours.

What is *not* a difference, because both are brought to the same form before they are compared:

- Identities that a broker chooses get names in the order in which they appear (`names.py`).
- Answers that say "not yet" (CONCURRENT_TRANSACTIONS while markers are under way, the coordinator's
  while it loads, NOT_ENOUGH_REPLICAS where Produce puts them into old words) are asked again until
  there is a final one. Kafka refuses at once where we wait; the final answer is compared.
- When a transaction times out: Kafka looks every so often, we have a deadline. The state that
  follows is waited for, not the time.
- Our own tagged fields of `__transaction_state`, timestamps, and the texts of error messages.
"""

import re
from typing import Final

from tests.judge.difference import Difference
from tests.judge.differences_of_access import OF_ACCESS

_ABORTED: Final = re.compile(r" aborted (\w+)@(\d+)")
_LOOK: Final = (
    r"(?P<what>(look|read) .* -> NONE hw \d+ lso \d+( start \d+)?)( aborted \w+@\d+)*"
    r"(?P<rest>( batches .*| \[.*)?)"
)


def _is_sorted_and_cut_off(kafka: str, ours: str) -> bool:
    """Ours has Kafka's aborted transactions that begin before the LSO, by where they begin."""
    lso = int(kafka.partition(" lso ")[2].split()[0])
    theirs = [(int(first), whose) for whose, first in _ABORTED.findall(kafka)]
    mine = [(int(first), whose) for whose, first in _ABORTED.findall(ours)]
    return mine == sorted(found for found in theirs if found[0] < lso)


def _is_one_behind(kafka: str, ours: str) -> bool:
    """The identity that Kafka hands out, if it does, is the one after the one that asks."""
    asked, *told = (int(epoch) for epoch in re.findall(r"p\d+/(\d+)", kafka))
    return told in ([], [asked + 1])


_OF_COORDINATORS: Final = (
    Difference(
        name="Retried EndTxn",
        story=r"(end\.cells\[situation=Complete(Commit|Abort)/1,version=5\]|walk\..*)",
        kafka=r"(?P<what>\w+ v5 [-\w]+ p\d+/\d+) -> (NONE p\d+/\d+|INVALID_TXN_STATE)",
        ours=r"(?P<what>\w+ v5 [-\w]+ p\d+/\d+) -> PRODUCER_FENCED",
        also=_is_one_behind,
    ),
    Difference(
        name="The answer with the last epoch may be lost",
        story=r"exhaustion\..*",
        kafka=r"((?P<what>init v\d e\d+ expects p1/32765) -> UNKNOWN_SERVER_ERROR|)",
        ours=r"((?P<what>init v\d e\d+ expects p1/32765) -> NONE p1/32766"
        r"|state e\d+: Empty p1/32766 60000ms TV\d previous p1 idle null)",
    ),
)

_OF_READING: Final = (
    Difference(
        name="Aborted transactions are sorted and end at the last stable offset",
        story=r"(walk|partition_walk|stable|end|produce)\..*",
        kafka=_LOOK,
        ours=_LOOK,
        also=_is_sorted_and_cut_off,
    ),
    Difference(
        name="An offset out of range is answered with the bounds of the log",
        story=r"(walk|partition_walk|stable|administration|fetch_(sessions|waits|walk))\..*",
        kafka=r"(?P<what>(look|read) .* -> OFFSET_OUT_OF_RANGE) hw -1 lso -1( start -1)?"
        r"(?P<rest>.*)",
        ours=r"(?P<what>(look|read) .* -> OFFSET_OUT_OF_RANGE) hw \d+ lso \d+( start (-1|\d+))?"
        r"(?P<rest>.*)",
    ),
)

_BOUNDS: Final = re.compile(r"(OUT_OF_RANGE) hw \d+ lso \d+ start (?:-1|\d+)")


def _is_same_but_for_bounds(kafka: str, ours: str) -> bool:
    return kafka != ours and kafka == _BOUNDS.sub(r"\1 hw -1 lso -1 start -1", ours)


_NOTHING: Final = re.compile(r"( NONE hw \d+ lso \d+ start \d+)( aborted \[[^]]*\])?\}")


def _is_same_but_where_nothing_is(kafka: str, ours: str) -> bool:
    """There may be an offset out of range in the same answer."""
    mine = _BOUNDS.sub(r"\1 hw -1 lso -1 start -1", ours)
    return kafka != ours and _NOTHING.sub(r"\1}", kafka) == _NOTHING.sub(r"\1}", mine)


_OF_SESSIONS: Final = (
    Difference(
        name="An offset out of range is answered with the bounds of the log: in a session, too",
        story=r"fetch_(sessions|waits|walk)\..*",
        kafka=r"fetch .* OFFSET_OUT_OF_RANGE .*",
        ours=r"fetch .* OFFSET_OUT_OF_RANGE .*",
        also=_is_same_but_for_bounds,
    ),
    Difference(
        name="No aborted transactions are listed where no batch fits",
        story=r"fetch_(walk|sessions\.batches_that_do_not_fit).*",
        kafka=r"(?P<what>fetch v\d+ \S+ committed max \d+ .*-> ).*",
        ours=r"(?P<what>fetch v\d+ \S+ committed max \d+ .*-> ).*",
        also=_is_same_but_where_nothing_is,
    ),
    Difference(
        name="A negative number of bytes of a partition is as 0",
        story=r"fetch_sessions\.a_position_that_is_changed.*",
        kafka=r"(?P<what>fetch .* max -1 -> .*)UNKNOWN_SERVER_ERROR .*",
        ours=r"(?P<what>fetch .* max -1 -> .*)NONE hw 3 lso 3 start 0 \(0\.\.0\).*",
    ),
)

_OF_PARTITIONS: Final = (
    Difference(
        name="Topics made anew",
        story=r"topics\.made_anew.*",
        kafka=r"(producers of|produce v1[12] x|log|look) t-0.*",
        ours=r"(|(producers of|produce v1[12] x|log|look) t-0.*)",
    ),
    Difference(
        name="A refused or repeated batch does not block its producer",
        story=r"sequences\.a_(late_repeat|refused_epoch)_does_not_block_.*",
        kafka=r"(?P<what>.* t-0 p1/0 #1\+1 txn -> t-0 )OUT_OF_ORDER_SEQUENCE_NUMBER.*",
        ours=r"(?P<what>.* t-0 p1/0 #1\+1 txn -> t-0 )@\d.*",
    ),
    Difference(
        name="Several batches for one partition in a request are all stored",
        story=r"sequences\.the_same_partition_twice_in_one_request.*",
        kafka=r"(?P<what>.* -> )t-0 @0 start 0",
        ours=r"(?P<what>.* -> )t-0 @0 start 0 \| t-0 @1 start 0",
    ),
    Difference(
        name="A repeated marker of TV2 is not written again",
        story=r"markers\..*generation=\(2, 2\).*",
        kafka=r"(?P<what>end of t-0 -> NONE NONE) [34] stable [34]",
        ours=r"(?P<what>end of t-0 -> NONE NONE) 2 stable 2",
    ),
    Difference(
        name="A batch that cannot be decompressed is CORRUPT_MESSAGE",
        story=r"compression\.nonsense.*",
        kafka=r"(?P<what>(noise|cut|empty) \w+ -> )(UNKNOWN_SERVER_ERROR|INVALID_RECORD)",
        ours=r"(?P<what>(noise|cut|empty) \w+ -> )CORRUPT_MESSAGE",
    ),
    Difference(
        name="Less is checked",
        story=r"compression\.a_count_that_is_wrong.*",
        kafka=r"(?P<what>\d+ of 2 -> )INVALID_RECORD",
        ours=r"(?P<what>\d+ of 2 -> )(@0|CORRUPT_MESSAGE)",
    ),
    Difference(
        name="A producer id below -1 has no markers",
        story=r"markers\.any_numbers\[.*producer_id=-5.*",
        kafka=r"(?P<what>mark v\d (COMMIT|ABORT) -5/-?\d+ .* -> -5 t-0 )(NONE|\w+)",
        ours=r"(?P<what>mark v\d (COMMIT|ABORT) -5/-?\d+ .* -> -5 t-0 )UNKNOWN_SERVER_ERROR",
    ),
    Difference(
        name="Under read_committed, ListOffsets finds no offset past the last stable offset",
        story=r"stable\.list_offsets.*",
        kafka=r"(?P<what>offset v\d+ t-0 at -3 committed -> NONE) -1",
        ours=r"(?P<what>offset v\d+ t-0 at -3 committed -> NONE) \d+",
    ),
    Difference(
        name="A group id has at most 1 KiB",
        story=r"bad_contents\.offsets_of_any_kind.*",
        kafka=r"(?P<what>commit offsets v5 group of 32000 characters -> 1) NONE",
        ours=r"(?P<what>commit offsets v5 group of 32000 characters -> 1) INVALID_GROUP_ID",
    ),
    Difference(
        name="A transactional batch has a producer id",
        story=r"bad_input\.transactional_batches_of_nobody.*",
        kafka=r"(?P<what>produce v\d+ x t-0 -\d/(-1|0) .* txn -> t-0) @\d.*",
        ours=r"(?P<what>produce v\d+ x t-0 -\d/(-1|0) .* txn -> t-0) INVALID_PRODUCER_ID_MAPPING",
    ),
    Difference(
        name="What is named twice is answered once: transactional ids and producers",
        story=r"bad_looks\.(ids|partitions)_to_describe",
        kafka=r"(?P<what>(describe 2 ids|producers of .*) -> )(?P<once>.+) \| (?P=once)",
        ours=r"(?P<what>(describe 2 ids|producers of .*) -> )(?P<once>.+)",
    ),
    Difference(
        name="All stable offsets of a group name those whose first one is pending, too",
        story=r"pending\.two_groups_of_which_one_is_unstable.*",
        kafka=r"(?P<what>offsets v\d+ h g of all -> h NONE \| g NONE)",
        ours=r"(?P<what>offsets v\d+ h g of all -> h NONE \| g NONE)"
        r" 0=-1/-1 '' UNSTABLE_OFFSET_COMMIT",
    ),
)

_NEW_GROUP: Final = r"GroupMetadata .*: b'\\x00\\x03(\\x00){6}(\\xff){4}<current_.*>(\\x00){4}'"
_IN_GROUPS: Final = r"(group_members|static_members|group_requests|consumer_groups|migration)\..*"


def _is_same_but_for_an_empty_topic(kafka: str, ours: str) -> bool:
    """Kafka's has the topic `u` without partitions, as the last one of two."""
    described = kafka.replace(" {topic_id=id(u) topic_name=u partitions=[]}", "", 1)
    stored = described.replace(r"\x03<t>", r"\x02<t>", 1).replace(r"<u>\x01\x00", "", 1)
    return kafka != stored == ours


def _is_nothing_or_has_the_same_key(kafka: str, ours: str) -> bool:
    return not ours or ours.partition(": ")[0] == kafka.partition(": ")[0]


_OF_GROUPS: Final = (
    Difference(
        name="A new group is not stored before it has an assignment",
        story=_IN_GROUPS,
        kafka=_NEW_GROUP,
        ours=r"",
    ),
    Difference(
        name="A protocol that a member names twice counts once",
        story=r"group_members\.protocols_that_are_named_twice",
        kafka=r"(?P<what>(join|sync) .* -> \{error_code=|describe groups v6 g -> ).*",
        ours=r"(?P<what>(join|sync) .* -> \{error_code=|describe groups v6 g -> ).*",
    ),
    Difference(
        name="A refused member leaves no group behind",
        story=r"group_members\.joins_that_make_no_sense.*",
        kafka=r"(?P<what>join v\d g 'somebody' .* -> \{error_code=)INCONSISTENT_GROUP_PROTOCOL"
        r"(?P<rest>.*)"
        r"|describe groups v6 g -> \{groups=\[\{error_code=NONE group_id=g group_state=Empty .*",
        ours=r"(?P<what>join v\d g 'somebody' .* -> \{error_code=)UNKNOWN_MEMBER_ID(?P<rest>.*)"
        r"|describe groups v6 g -> \{groups=\[\{error_code=GROUP_ID_NOT_FOUND group_id=g .*",
    ),
    Difference(
        name="A static member that comes back has one record of each kind",
        story=r"(consumer_groups\.(a_)?static_member|migration\.a_static_member).*",
        kafka=r"ConsumerGroup(MemberMetadata|TargetAssignmentMember|CurrentMemberAssignment) "
        r"b'.*': b'.*",
        ours=r"(ConsumerGroupMemberMetadata .*)?",
        also=_is_nothing_or_has_the_same_key,
    ),
    Difference(
        name="A classic member that owns a partition that does not exist",
        story=r"migration\.a_classic_member_that_owns_a_partition_that_is_not_there",
        kafka=r"(?P<what>beat v1 g 'new' at 0 .* -> )\{error_code=UNKNOWN_SERVER_ERROR\}",
        ours=r"(?P<what>beat v1 g 'new' at 0 .* -> )\{error_code=NONE .*\}",
    ),
    Difference(
        name="A topic of which a classic member owns no partition",
        story=r"migration\.classic_groups_of_all_kinds\[what=no partition\]",
        kafka=r"(describe consumers|ConsumerGroup(Target|Current)\w+) .*",
        ours=r"(describe consumers|ConsumerGroup(Target|Current)\w+) .*",
        also=_is_same_but_for_an_empty_topic,
    ),
    Difference(
        name="Classic members alone in a group of the new protocol",
        story=r"migration\.to_the_new_protocol_and_back\[policy=upgrade\]",
        kafka=r"(?P<what>heartbeat v4 g 'm1' of 2 .*error_code=)NONE\}",
        ours=r"(?P<what>heartbeat v4 g 'm1' of 2 .*error_code=)REBALANCE_IN_PROGRESS\}",
    ),
    Difference(
        name="A draw between assignors",
        story=r"consumer_groups\.assignors_of_several_members",
        kafka=r"(?P<what>describe consumers .*) assignor_name=uniform (?P<rest>.*)",
        ours=r"(?P<what>describe consumers .*) assignor_name=range (?P<rest>.*)",
    ),
    Difference(
        name="A pattern is matched before the first answer",
        story=r"consumer_groups\.nonsense\[what=a pattern alone,version=1\]",
        kafka=r"(?P<what>join|go on|describe) .*epoch=1 .*",
        ours=r"(?P<what>join|go on|describe) .*(epoch=2 .*|FENCED_MEMBER_EPOCH\})",
    ),
    Difference(
        name="Patterns are matched by RE2 itself",
        story=r"patterns\.syntax\[kind=of re2 alone\]",
        kafka=r"(a joins g\d pattern .* -> INVALID_REGULAR_EXPRESSION)?",
        ours=r"a (joins g\d pattern .* -> NONE|of g\d has .*)",
    ),
    Difference(
        name="The program of a pattern has at most 64 KiB",
        story=r"patterns\.syntax\[kind=large\]",
        kafka=r"a (joins g\d+ pattern .* -> NONE|of g\d+ has .*)",
        ours=r"(a joins g\d+ pattern .* -> INVALID_(REQUEST|REGULAR_EXPRESSION))?",
    ),
    Difference(
        name="An offset is fetched with an epoch and without a member",
        story=r"group_requests\.fetch_as_a_member.*",
        kafka=r"(?P<what>fetch v\d+ c None at .* error_code=)UNKNOWN_SERVER_ERROR(?P<rest>.*)",
        ours=r"(?P<what>fetch v\d+ c None at .* error_code=)UNKNOWN_MEMBER_ID(?P<rest>.*)",
    ),
    Difference(
        name="Offsets of a topic that a new member is going to read are not deleted",
        story=r"group_requests\.delete_offsets_of_topics_that_a_new_member_.*",
        kafka=r"(?P<what>delete offsets g .*name=u .*=)NONE\}\]\}\]\}|offsets: g u-0 removed",
        ours=r"(?P<what>delete offsets g .*name=u .*=)GROUP_SUBSCRIBED_TO_TOPIC\}\]\}\]\}|",
    ),
    Difference(
        name="What is named twice is answered once: offsets to delete",
        story=r"(group_requests\.delete_offsets_that_are_named_twice|nonsense.*=OffsetDelete\])",
        kafka=r"(?P<what>delete offsets .*)|(?P<removed>offsets: (?P<it>[ot] t-0 removed)) (?P=it)",
        ours=r"(?P<start>delete offsets .*)|(?P<removed>offsets: [ot] t-0 removed)",
    ),
)


_KEPT_LONG: Final = " (log.retention.ms='604800000' 5)"


def _is_same_but_for_defaults(kafka: str, ours: str) -> bool:
    """Ours has one more synonym, and no cluster-wide min.insync.replicas."""
    return ours.replace(_KEPT_LONG, "") == re.sub(
        r" ; min\.insync\.replicas='1' from 3 type \d (\(min\.insync\.replicas='1' 3\) )?\S+$",
        "",
        kafka,
    )


_TWICE: Final = re.compile(r"(\{(?:[^{}]|\{[^{}]*\})*\}) \1")


def _is_said_once(kafka: str, ours: str) -> bool:
    return kafka != ours == _TWICE.sub(r"\1", kafka)


_OF_ADMINISTRATION: Final = (
    Difference(
        name="What is named twice is answered once: partitions",
        story=r"nonsense\.any\[api=(ElectLeaders|OffsetDelete|AlterPartitionReassignments)\]",
        kafka=r"(?P<what>[.\w]+: twice the same -> ).*",
        ours=r"(?P<what>[.\w]+: twice the same -> ).*",
        also=_is_said_once,
    ),
    Difference(
        name="A cursor behind the last partition that there can be",
        story=r"nonsense\.any\[api=DescribeTopicPartitions\]",
        kafka=r"(?P<what>cursor.partition_index=2147483647 -> .*) next_cursor=\{.*-\d+\}\}",
        ours=r"(?P<what>cursor.partition_index=2147483647 -> .*)\}",
    ),
    Difference(
        name="What a member sends is bounded",
        story=r"nonsense\.any\[api=ConsumerGroupHeartbeat\]",
        kafka=r"(?P<what>(member|instance|rack)_id=300 characters -> )\{error_code=(NONE|GROUP_).*",
        ours=r"(?P<what>(member|instance|rack)_id=300 characters -> )\{error_code=INVALID_REQ.*",
    ),
    Difference(
        name="Some defaults belong to other settings",
        story=r"settings\..*",
        kafka=r"settings of .*",
        ours=r"settings of .*",
        also=_is_same_but_for_defaults,
    ),
    Difference(
        name="A broker has no loggers whose levels could be changed",
        story=r"(group_)?settings\.listed.*",
        kafka=r"(?P<what>resources of \[8?\] v1 -> NONE) 8 '1'(?P<rest>.*)",
        ours=r"(?P<what>resources of \[8?\] v1 -> NONE)(?P<rest>.*)",
    ),
    Difference(
        name="An operation that does not exist is INVALID_REQUEST",
        story=r"(group_settings\.refused_changes.*|nonsense\.any\[api=IncrementalAlterConfigs\])",
        kafka=r"(?P<what>change .* 9 '1' .* -> \w+ '\w+' )UNKNOWN_SERVER_ERROR"
        r"|(?P<n>.*config_operation=-?\d+ -> .*error_code=)UNKNOWN_SERVER_ERROR(?P<rest> .*)",
        ours=r"(?P<what>change .* 9 '1' .* -> \w+ '\w+' )INVALID_REQUEST"
        r"|(?P<n>.*config_operation=-?\d+ -> .*error_code=)INVALID_REQUEST(?P<rest> .*)",
    ),
    Difference(
        name="A topic that is only validated has no id",
        story=r"(topic_requests\.create\[version=7,only_checked=true\]|compression\.settings)",
        kafka=r"(?P<what>create .* NONE \d/1) id (?P<rest>.*)",
        ours=r"(?P<what>create .* NONE \d/1) no id (?P<rest>.*)",
    ),
    Difference(
        name="What is named twice is answered once: elections",
        story=r"administration\.elections.*",
        kafka=r"(?P<what>elect \d .*partition_result=\[)(?P<once>\{.*?\}) (?P=once)(?P<rest>.*)",
        ours=r"(?P<what>elect \d .*?partition_result=\[)(?P<once>\{.*?\})(?P<rest>.*)",
    ),
    Difference(
        name="A topic without name and id is refused alone",
        story=r"administration\.metadata.*",
        kafka=r"(?P<what>metadata of None/zero .* -> ).*UNKNOWN_SERVER_ERROR.*",
        ours=r"(?P<what>metadata of None/zero .* -> )NONE .*error_code=INVALID_REQUEST name=None.*",
    ),
    Difference(
        name="A name that no topic may have is refused alone",
        story=r"(topic_requests\.topic_partitions|nonsense\.any\[api=DescribeTopicPartitions\])",
        kafka=r"(?P<what>(partitions of .*|topics\.name=.*) -> ).*UNKNOWN_SERVER_ERROR.*",
        ours=r"(?P<what>(partitions of .*|topics\.name=.*) -> ).*INVALID_TOPIC_EXCEPTION.*",
    ),
)

DIFFERENCES: Final[tuple[Difference, ...]] = (
    *OF_ACCESS,
    *_OF_COORDINATORS,
    *_OF_READING,
    *_OF_SESSIONS,
    *_OF_PARTITIONS,
    *_OF_GROUPS,
    *_OF_ADMINISTRATION,
)
