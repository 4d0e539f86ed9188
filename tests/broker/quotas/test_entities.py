"""Which of several quotas counts for a client, and who shares it."""

from itertools import product
from typing import Final

import pytest

from odradek.broker.quotas.entities import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    USER,
    Entity,
    Found,
    QuotaTable,
    entity_of,
)

BY_PRECEDENCE: Final[tuple[tuple[Entity, tuple[str | None, str | None]], ...]] = (
    (((USER, "alice"), (CLIENT_ID, "app")), ("alice", "app")),
    (((USER, "alice"), (CLIENT_ID, None)), ("alice", "app")),
    (((USER, "alice"),), ("alice", None)),
    (((USER, None), (CLIENT_ID, "app")), ("alice", "app")),
    (((USER, None), (CLIENT_ID, None)), ("alice", "app")),
    (((USER, None),), ("alice", None)),
    (((CLIENT_ID, "app"),), (None, "app")),
    (((CLIENT_ID, None),), (None, "app")),
)
"""As Kafka's documentation of quotas lists them."""


@pytest.mark.parametrize("are_set", list(product((False, True), repeat=len(BY_PRECEDENCE))))
def test_the_first_entity_that_has_a_value_counts(are_set: tuple[bool, ...]) -> None:
    chosen = [
        (number, entity, sharers)
        for number, (is_set, (entity, sharers)) in enumerate(
            zip(are_set, BY_PRECEDENCE, strict=True), start=1
        )
        if is_set
    ]
    of_others = {
        ((USER, "bob"),): {PRODUCER_BYTE_RATE: 99.0},
        ((CLIENT_ID, "ap"),): {PRODUCER_BYTE_RATE: 99.0},
    }
    # Another kind of quota of a nearer entity does not hide that of a farther one.
    near = {BY_PRECEDENCE[0][0]: {CONSUMER_BYTE_RATE: 7.0}}
    table = QuotaTable(
        of_others | near | {entity: {PRODUCER_BYTE_RATE: float(n)} for n, entity, _ in chosen}
    )
    found = table.find(PRODUCER_BYTE_RATE, "alice", "app")
    assert found == (Found(float(chosen[0][0]), chosen[0][2]) if chosen else None)


def test_an_address_has_its_own_quota_or_the_default_however_it_is_written() -> None:
    table = QuotaTable(
        {
            ((IP, "10.0.0.7"),): {CONNECTION_CREATION_RATE: 5.0},
            ((IP, "2001:db8:0::1"),): {CONNECTION_CREATION_RATE: 6.0},
            ((IP, None),): {CONNECTION_CREATION_RATE: 9.0},
        }
    )
    asked = ("10.0.0.7", "::ffff:10.0.0.7", "2001:db8::1", "10.0.0.8")
    assert [table.connection_rate(each) for each in asked] == [5.0, 5.0, 6.0, 9.0]
    assert QuotaTable({}).connection_rate("10.0.0.7") is None


def test_an_entity_has_its_types_in_one_order() -> None:
    assert entity_of({CLIENT_ID: None, USER: "a"}) == ((USER, "a"), (CLIENT_ID, None))
