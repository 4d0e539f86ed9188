"""Error codes become errors that say what to do."""

import pytest

from odradek.client.config import parse_bootstrap
from odradek.client.errors import (
    Aborted,
    Fatal,
    Fenced,
    OffsetOutOfRange,
    Refused,
    Retriable,
    TimedOut,
    code_of,
    error_for,
    transactional_error_for,
)
from odradek.protocol.errors import ErrorCode


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.PRODUCER_FENCED, Fenced),
        (ErrorCode.INVALID_PRODUCER_EPOCH, Fenced),
        (ErrorCode.TRANSACTION_ABORTABLE, Aborted),
        (ErrorCode.OFFSET_OUT_OF_RANGE, OffsetOutOfRange),
        (ErrorCode.REQUEST_TIMED_OUT, TimedOut),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Retriable),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, Refused),
        (ErrorCode.INVALID_TXN_STATE, Refused),
    ],
)
def test_a_code_becomes_an_error(code: ErrorCode, kind: type[Exception]) -> None:
    error = error_for(code, "doing it", "the broker's words.")
    assert type(error) is kind
    assert error.code == code
    assert str(error).startswith(f"doing it: the broker answered {code.name} (the broker's words)")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, Fenced),
        (ErrorCode.INVALID_TXN_STATE, Fatal),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, Fatal),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, Aborted),
        (ErrorCode.UNKNOWN_PRODUCER_ID, Aborted),
        (ErrorCode.ILLEGAL_GENERATION, Aborted),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Aborted),
        (ErrorCode.MESSAGE_TOO_LARGE, Refused),
    ],
)
def test_in_a_transaction_it_says_what_becomes_of_it(
    code: ErrorCode, kind: type[Exception]
) -> None:
    assert type(transactional_error_for(code, "doing it")) is kind


def test_a_right_that_is_missing_is_an_entry_that_an_administrator_can_see() -> None:
    """The code and Kafka's phrase said the same twice, and nothing of what to do."""
    refused = error_for(
        ErrorCode.GROUP_AUTHORIZATION_FAILED, "joining", "Group authorization failed."
    )
    assert str(refused) == (
        "joining: the broker answered GROUP_AUTHORIZATION_FAILED (Group authorization failed); "
        "an ACL entry must allow it; `odradek acl why` shows an administrator what decides"
    )


def test_a_code_of_the_future_is_an_unknown_error() -> None:
    assert code_of(9_999) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_copy_says_the_same() -> None:
    error = error_for(ErrorCode.MESSAGE_TOO_LARGE, "writing")
    copy = error.copy()
    assert (type(copy), str(copy), copy.code) == (type(error), str(error), error.code)
    assert copy is not error


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        ("a:1", (("a", 1),)),
        ("a:1, b:2", (("a", 1), ("b", 2))),
        (["a:1", "[::1]:2"], (("a", 1), ("::1", 2))),
    ],
)
def test_addresses(given: object, parsed: object) -> None:
    assert parse_bootstrap(given) == parsed  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["", "a", "a:", ":1", "a:x", "a:0", "a:70000", "a:1,"])
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_bootstrap(given)


@pytest.mark.parametrize("code", ErrorCode)
def test_what_is_said_does_not_end_with_a_full_stop_that_a_command_would_take_off(
    code: ErrorCode,
) -> None:
    """The name '..' lost a dot."""
    assert not str(error_for(code, "doing it")).endswith(".")
