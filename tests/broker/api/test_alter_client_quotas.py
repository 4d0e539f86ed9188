"""AlterClientQuotas, and what DescribeClientQuotas then shows, as a real Kafka answers."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from odradek.protocol.apis.client_quotas import (
    ALTER_CLIENT_QUOTAS,
    DEFAULT,
    DESCRIBE_CLIENT_QUOTAS,
    EXACT,
    SPECIFIED,
    AlterClientQuotasRequest,
    AlterEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.api.conftest import HostAndPort
from tests.broker.api.producing import until
from tests.broker.raw import RawClient

E = ErrorCode
Parts = tuple[tuple[str, str | None], ...]
PRODUCER: Final = "producer_byte_rate"
CONSUMER: Final = "consumer_byte_rate"
PERCENTAGE: Final = "request_percentage"
MUTATIONS: Final = "controller_mutation_rate"
CONNECTIONS: Final = "connection_creation_rate"
TOO_LARGE: Final = "Proposed value for producer_byte_rate is too large for a LONG."
USER: Final[Parts] = (("user", "zoe"),)
BOTH: Final[Parts] = (("user", "zoe"), ("client-id", "app"))
CLIENT: Final[Parts] = (("client-id", "app"),)
DEFAULT_CLIENT: Final[Parts] = (("user", "zoe"), ("client-id", None))
ADDRESS: Final[Parts] = (("ip", "10.9.8.7"),)
ALL: Final = (USER, BOTH, CLIENT, DEFAULT_CLIENT, ADDRESS)


def alter(
    client: RawClient,
    *changes: tuple[Parts, tuple[tuple[str, float | None], ...]],
    validates: bool = False,
    version: int = 1,
) -> dict[frozenset[tuple[str, str | None]], tuple[int, str | None]]:
    request = AlterClientQuotasRequest(
        entries=tuple(
            AlterEntryData(
                entity=tuple(
                    EntityData(entity_type=kind, entity_name=name) for kind, name in parts
                ),
                ops=tuple(
                    OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops
                ),
            )
            for parts, ops in changes
        ),
        validate_only=validates,
    )
    answer = client.ask(ALTER_CLIENT_QUOTAS, version, request)
    return {
        frozenset((each.entity_type, each.entity_name) for each in entry.entity): (
            entry.error_code,
            entry.error_message,
        )
        for entry in answer.entries
    }


def altered(client: RawClient, parts: Parts, *ops: tuple[str, float | None]) -> tuple[int, Any]:
    [found] = alter(client, (parts, ops)).values()
    return found


def described(
    client: RawClient, *components: tuple[str, int, str | None], strict: bool = False
) -> dict[frozenset[tuple[str, str | None]], dict[str, float]]:
    request = DescribeClientQuotasRequest(
        components=tuple(
            ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ),
        strict=strict,
    )
    answer = client.ask(DESCRIBE_CLIENT_QUOTAS, 1, request)
    assert answer.error_code == E.NONE
    return {
        frozenset((each.entity_type, each.entity_name) for each in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }


def shows(
    client: RawClient,
    expected: Mapping[Parts, dict[str, float]],
    *components: tuple[str, int, str | None],
) -> None:
    """Wait until a filter selects this: a real Kafka answers before a change counts."""
    wanted = {frozenset(parts): values for parts, values in expected.items()}
    until(lambda: described(client, *components), wanted.__eq__)


@pytest.fixture
def quiet(either: RawClient) -> Iterator[RawClient]:
    """A connection to a broker without quotas, before and after."""
    yield either
    every = (PRODUCER, CONSUMER, PERCENTAGE, MUTATIONS)
    for parts in ALL:
        kinds = (CONNECTIONS,) if parts == ADDRESS else every
        alter(either, (parts, tuple((kind, None) for kind in kinds)))
    shows(either, {})


@pytest.mark.parametrize("version", range(2))
def test_quotas_are_set_changed_and_removed(quiet: RawClient, version: int) -> None:
    big = 1e12
    done = alter(
        quiet,
        (USER, ((PRODUCER, big), (MUTATIONS, 1e9))),
        (DEFAULT_CLIENT, ((PERCENTAGE, 5000.5),)),
        version=version,
    )
    assert done == {frozenset(USER): (E.NONE, None), frozenset(DEFAULT_CLIENT): (E.NONE, None)}
    of_zoe = (("user", EXACT, "zoe"),)
    first = {USER: {PRODUCER: big, MUTATIONS: 1e9}, DEFAULT_CLIENT: {PERCENTAGE: 5000.5}}
    shows(quiet, first, *of_zoe)
    assert altered(quiet, USER, (PRODUCER, None), (CONSUMER, big)) == (E.NONE, None)
    assert altered(quiet, DEFAULT_CLIENT, (PERCENTAGE, None), ("unknown", None)) == (E.NONE, None)
    shows(quiet, {USER: {CONSUMER: big, MUTATIONS: 1e9}}, *of_zoe)


def test_what_is_only_validated_is_not_set(quiet: RawClient) -> None:
    assert alter(quiet, (USER, ((PRODUCER, 1e9),)), validates=True) == {
        frozenset(USER): (E.NONE, None)
    }
    [(code, _)] = alter(quiet, (USER, ((PRODUCER, 0.0),)), validates=True).values()
    assert code == E.INVALID_REQUEST
    shows(quiet, {}, ("user", EXACT, "zoe"))


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ((("user", EXACT, "zoe"),), False, (USER, BOTH, DEFAULT_CLIENT)),
        ((("user", EXACT, "zoe"),), True, (USER,)),
        ((("user", EXACT, "zo"),), False, ()),
        ((("client-id", DEFAULT, None),), False, (DEFAULT_CLIENT,)),
        ((("client-id", DEFAULT, None),), True, ()),
        ((("client-id", SPECIFIED, None),), False, (BOTH, CLIENT, DEFAULT_CLIENT)),
        ((("client-id", SPECIFIED, None),), True, (CLIENT,)),
        ((("user", SPECIFIED, None), ("client-id", EXACT, "app")), False, (BOTH,)),
        ((("user", SPECIFIED, None), ("client-id", SPECIFIED, None)), True, (BOTH, DEFAULT_CLIENT)),
        ((("ip", SPECIFIED, None),), False, (ADDRESS,)),
        ((), False, ALL),
        ((), True, ()),
    ],
)
def test_a_filter_selects_names_defaults_and_types(
    quiet: RawClient,
    components: tuple[tuple[str, int, str | None], ...],
    strict: bool,
    expected: tuple[Parts, ...],
) -> None:
    for parts in ALL:
        kind = CONNECTIONS if parts == ADDRESS else CONSUMER
        assert altered(quiet, parts, (kind, 1e9)) == (E.NONE, None)
    wanted = set(map(frozenset, expected))
    until(lambda: set(described(quiet, *components, strict=strict)), wanted.__eq__)


@pytest.mark.parametrize(
    ("parts", "ops", "message"),
    [
        (USER, ((PRODUCER, 0.0),), "Quota producer_byte_rate must be greater than 0"),
        (USER, ((PERCENTAGE, -1.0),), "Quota request_percentage must be greater than 0"),
        (USER, ((PRODUCER, 1.5),), "producer_byte_rate cannot be a fractional value."),
        (
            USER,
            ((PRODUCER, 1e19),),
            TOO_LARGE,
        ),
        (USER, (("nothing", 1.0),), "Invalid configuration key nothing"),
        (USER, ((CONNECTIONS, 1.0),), "Invalid configuration key connection_creation_rate"),
        (ADDRESS, ((PRODUCER, 1.0),), "Invalid configuration key producer_byte_rate"),
        (ADDRESS, ((CONNECTIONS, 0.5),), "connection_creation_rate cannot be a fractional value."),
        (
            ADDRESS,
            ((CONNECTIONS, 3e9),),
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        (
            (*ADDRESS, *USER),
            ((CONNECTIONS, 1.0),),
            "Invalid quota entity combination, IP entity shouldnot be combined with User or "
            "ClientId",
        ),
        ((("host", "x"),), ((PRODUCER, 1.0),), "Unhandled client quota entity type: host"),
        ((("user", ""),), ((PRODUCER, 1.0),), "Empty user not supported"),
        ((), ((PRODUCER, 1.0),), "Invalid empty client quota entity"),
        (
            BOTH,
            ((PRODUCER, 1e9), (PRODUCER, 1e9)),
            "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=app, user=zoe})",
        ),
        (
            DEFAULT_CLIENT,
            ((PRODUCER, 1e9), (PRODUCER, None)),
            "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=null, user=zoe})",
        ),
    ],
)
def test_what_cannot_be_a_quota_is_refused_with_kafkas_words(
    quiet: RawClient, parts: Parts, ops: tuple[tuple[str, float | None], ...], message: str
) -> None:
    assert altered(quiet, parts, *ops) == (E.INVALID_REQUEST, message)
    shows(quiet, {})


def test_each_entity_succeeds_or_fails_for_itself(quiet: RawClient) -> None:
    done = alter(quiet, (USER, ((PRODUCER, 0.0),)), (CLIENT, ((PRODUCER, 1e9),)))
    assert done[frozenset(USER)][0] == E.INVALID_REQUEST
    assert done[frozenset(CLIENT)] == (E.NONE, None)
    shows(quiet, {CLIENT: {PRODUCER: 1e9}})


def test_the_address_of_a_quota_is_an_address(quiet: RawClient) -> None:
    code, message = altered(quiet, (("ip", "no such host."),), (CONNECTIONS, 1.0))
    assert code == E.INVALID_REQUEST
    assert message.startswith("no such host. is not a valid IP or resolvable host.")


@pytest.fixture
def raw(odradek_address: str) -> Iterator[RawClient]:
    """A connection to ours."""
    host, _, port = odradek_address.rpartition(":")
    with RawClient(HostAndPort(host, int(port))) as client:
        yield client


def test_an_entity_that_is_given_twice_is_not_changed(raw: RawClient) -> None:
    change: Any = (USER, ((PRODUCER, 1e9),))
    [(code, _)] = alter(raw, change, change).values()
    assert code == E.INVALID_REQUEST
    assert described(raw) == {}


@pytest.mark.parametrize(
    ("parts", "key", "value", "message"),
    [
        (ADDRESS, CONNECTIONS, 1e-7, "connection_creation_rate cannot be a fractional value."),
        (USER, PRODUCER, 1e-7, "producer_byte_rate cannot be a fractional value."),
        (USER, CONSUMER, 1.0001, "consumer_byte_rate cannot be a fractional value."),
        (USER, PERCENTAGE, 5e-324, "Quota request_percentage must be at least 0.000001"),
        (USER, MUTATIONS, 9e-7, "Quota controller_mutation_rate must be at least 0.000001"),
    ],
)
def test_a_quota_that_would_let_nothing_pass_is_refused(
    raw: RawClient, parts: Parts, key: str, value: float, message: str
) -> None:
    assert altered(raw, parts, (key, value)) == (E.INVALID_REQUEST, message)
    assert described(raw) == {}


@pytest.mark.parametrize(
    ("key", "value"), [(PRODUCER, 4999.9999999), (PRODUCER, 5000.0000001), (PERCENTAGE, 1e-6)]
)
def test_what_is_next_to_a_whole_number_and_the_least_value_can_be_quotas(
    raw: RawClient, key: str, value: float
) -> None:
    assert altered(raw, (("user", "nobody"),), (key, value)) == (E.NONE, None)
    assert described(raw) == {frozenset({("user", "nobody")}): {key: value}}
    assert altered(raw, (("user", "nobody"),), (key, None)) == (E.NONE, None)


def test_a_value_that_is_no_number_is_refused(raw: RawClient) -> None:
    assert altered(raw, USER, (PERCENTAGE, math.nan)) == (
        E.INVALID_REQUEST,
        "Quota request_percentage must be greater than 0",
    )
    assert altered(raw, (("user", "x" * 4_097),), (PRODUCER, 1.0))[0] == E.INVALID_REQUEST
    assert described(raw) == {}
