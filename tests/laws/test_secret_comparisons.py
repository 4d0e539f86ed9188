"""Secrets are compared by `hmac.compare_digest` only."""

import ast

import pytest

from tests.laws.secret_comparisons import insecure_comparisons
from tests.laws.source import modules, require_none


def test_the_time_of_a_comparison_tells_nothing_of_a_secret() -> None:
    require_none(
        f"{module} has {found}: its time tells where a secret differs. Use hmac.compare_digest."
        for module, tree in modules()
        for found in insecure_comparisons(tree)
    )


@pytest.mark.parametrize(
    "line",
    [
        "password == given",
        "given != self.password",
        "kept.stored_key == key",
        "scram.server_key(algorithm, salted) == found",
        "password in (first, second)",
        "0 < size == user_password",
        "kept.signature.startswith(given)",
        "given.endswith(secret)",
        "made.digest() == kept",
        "kept.hash != _scrypt(text)",
    ],
)
def test_a_comparison_that_tells_where_is_seen(line: str) -> None:
    assert list(insecure_comparisons(ast.parse(line))) == [line]


@pytest.mark.parametrize(
    "line",
    [
        "hmac.compare_digest(password, given)",
        "password is None",
        "len(secret) != 32",
        "key == CLUSTER_SECRET",
        "name in self.passwords",
        "found != group.metadata_hash",
        "name.startswith('user_')",
    ],
)
def test_what_compares_no_secret_is_let_pass(line: str) -> None:
    assert list(insecure_comparisons(ast.parse(line))) == []
