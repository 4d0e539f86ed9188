"""The assignors of consumer groups (KIP-848): every partition once, equally, and with few moves."""

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

import pytest

from odradek.broker.group.consumer.assignors import (
    ASSIGNORS,
    Assignment,
    Subscriber,
    range_of_each,
    uniform,
)
from tests.drawing import given, st

T, U, V = (UUID(int=number) for number in (1, 2, 3))


def reader(
    name: str, *topic_ids: UUID, has: Mapping[UUID, Sequence[int]] | None = None
) -> Subscriber:
    return Subscriber(
        member_id=name,
        instance_id=None,
        topic_ids=frozenset(topic_ids),
        target={key: frozenset(each) for key, each in (has or {}).items()},
    )


def sizes(assigned: Assignment) -> list[int]:
    return [sum(map(len, topics.values())) for topics in assigned.values()]


def test_uniform_shares_equally_and_gives_the_rest_to_the_last() -> None:
    assigned = uniform([reader("a", T, U), reader("b", T, U)], {T: 3, U: 2})
    assert assigned == {"a": {T: {0, 1}}, "b": {T: {2}, U: {0, 1}}}


def test_uniform_keeps_what_it_can_when_a_member_joins() -> None:
    readers = [reader("a", T, has={T: [0, 1, 2, 3]}), reader("b", T)]
    assert uniform(readers, {T: 4}) == {"a": {T: {0, 1}}, "b": {T: {2, 3}}}


def test_uniform_moves_nothing_that_is_equal_already() -> None:
    readers = [reader("a", T, has={T: [0, 3]}), reader("b", T, has={T: [1, 2]})]
    assert uniform(readers, {T: 4}) == {"a": {T: {0, 3}}, "b": {T: {1, 2}}}


def test_uniform_gives_back_topics_that_are_not_read_any_more() -> None:
    assert uniform([reader("a", U, has={T: [0]})], {U: 1}) == {"a": {U: {0}}}


def test_uniform_balances_readers_of_different_topics() -> None:
    readers = [reader("a", T, has={T: [0, 1, 2, 3]}), reader("b", T, U)]
    assigned = uniform(readers, {T: 4, U: 2})
    assert sorted(sizes(assigned)) == [3, 3]
    assert assigned["b"][U] == {0, 1}


def test_range_follows_instance_ids_and_then_member_ids() -> None:
    static = Subscriber(member_id="z", instance_id="i", topic_ids=frozenset({T}), target={})
    assigned = range_of_each([reader("b", T), reader("a", T), static], {T: 4})
    assert assigned == {"z": {T: {0, 1}}, "a": {T: {2}}, "b": {T: {3}}}


topic_ids = st.frozensets(st.sampled_from([T, U, V]))


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[Subscriber], dict[UUID, int]]:
    """Return readers with a valid old target, and the topics, which may have grown or shrunk."""
    counts = {topic: draw(st.integers(1, 9)) for topic in (T, U, V)}
    names = "abcde"[: draw(st.integers(1, 5))]
    subscriptions = draw(
        st.lists(topic_ids, min_size=len(names), max_size=len(names))
        | topic_ids.map(lambda each: [each] * len(names))
    )
    targets: dict[str, dict[UUID, list[int]]] = {name: {} for name in names}
    for topic in (T, U, V):
        for index in range(12):
            owner = draw(st.sampled_from([None, *names]))
            if owner is not None:
                targets[owner].setdefault(topic, []).append(index)
    readers = [
        reader(name, *topics, has=targets[name])
        for name, topics in zip(names, subscriptions, strict=True)
    ]
    return readers, counts


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
def test_every_partition_has_one_reader_of_its_topic(
    assign: Callable[[Sequence[Subscriber], Mapping[UUID, int]], Assignment],
) -> None:
    @given(group=groups())
    def check(group: tuple[list[Subscriber], dict[UUID, int]]) -> None:
        readers, counts = group
        assigned = assign(readers, counts)
        assert list(sorted(assigned)) == [each.member_id for each in readers]
        places = [
            (topic, index)
            for each in readers
            for topic, indexes in assigned[each.member_id].items()
            for index in indexes
        ]
        read = frozenset().union(*(each.topic_ids for each in readers))
        assert sorted(places) == sorted((t, i) for t in read for i in range(counts[t]))
        for each in readers:
            assert assigned[each.member_id].keys() <= each.topic_ids

    check()


@given(group=groups())
def test_uniform_is_balanced_and_stays_as_it_is(
    group: tuple[list[Subscriber], dict[UUID, int]],
) -> None:
    readers, counts = group
    assigned = uniform(readers, counts)
    load = dict(zip(assigned, sizes(assigned), strict=True))
    for topic in counts:
        loads = [load[each.member_id] for each in readers if topic in each.topic_ids]
        owners = [load[name] for name, topics in assigned.items() if topic in topics]
        if owners:
            assert max(owners) - min(loads) <= 1
    again = [reader(r.member_id, *r.topic_ids, has=assigned[r.member_id]) for r in readers]  # type: ignore[arg-type]
    assert uniform(again, counts) == assigned
