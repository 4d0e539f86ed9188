"""Principals and their texts."""

import pytest

from odradek.broker.security.principal import (
    ANONYMOUS,
    Principal,
    parse_principal,
    parse_principals,
)


def test_a_principal_is_read_from_the_text_that_it_is_shown_as() -> None:
    for principal in (ANONYMOUS, Principal("User", "CN=alice,O=a:b"), Principal("User", "")):
        assert parse_principal(str(principal)) == principal


@pytest.mark.parametrize("text", ["alice", "", ":alice"])
def test_a_text_without_a_kind_is_no_principal(text: str) -> None:
    with pytest.raises(ValueError, match="form User:NAME"):
        parse_principal(text)


def test_semicolons_separate_principals() -> None:
    """The names of certificates have commas."""
    both = Principal("User", "CN=ops,O=Flights"), Principal("User", "admin")
    assert parse_principals("User:CN=ops,O=Flights; User:admin;") == both
    assert parse_principals("") == ()
