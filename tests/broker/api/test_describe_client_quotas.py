"""DescribeClientQuotas, as a real Kafka answers it (with --peers)."""

from typing import Any

import pytest

from odradek.protocol.apis.client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    ComponentData,
    DescribeClientQuotasRequest,
)
from odradek.protocol.errors import ErrorCode
from tests.broker.raw import RawClient

E = ErrorCode


def quotas(client: RawClient, version: int, *components: tuple[str, int, str | None]) -> Any:
    request = DescribeClientQuotasRequest(
        components=tuple(
            ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ),
        strict=True,
    )
    answer = client.ask(DESCRIBE_CLIENT_QUOTAS, version, request)
    return answer.error_code, answer.error_message, answer.entries


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    "components",
    [
        [],
        [("user", 0, "a"), ("client-id", 1, None)],
        [("ip", 2, None)],
    ],
)
def test_there_are_no_quotas(
    either: RawClient, version: int, components: list[tuple[str, int, str | None]]
) -> None:
    assert quotas(either, version, *components) == (E.NONE, "", ())


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([("", 0, "x")], E.INVALID_REQUEST, "Invalid empty entity type."),
        (
            [("user", 0, "a"), ("user", 1, None)],
            E.INVALID_REQUEST,
            "Entity type user cannot appear more than once in the filter.",
        ),
        ([("host", 0, "a")], E.UNSUPPORTED_VERSION, "Unsupported entity type host"),
        (
            [("user", 0, None)],
            E.INVALID_REQUEST,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [("user", 1, "x")],
            E.INVALID_REQUEST,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            [("user", 2, "x")],
            E.INVALID_REQUEST,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        ([("user", 7, "x")], E.INVALID_REQUEST, "Unknown match type 7"),
        (
            [("ip", 0, "1"), ("user", 0, "a")],
            E.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component.",
        ),
    ],
)
def test_a_filter_of_quotas_is_checked(
    either: RawClient,
    components: list[tuple[str, int, str | None]],
    code: ErrorCode,
    message: str,
) -> None:
    assert quotas(either, 1, *components) == (code, message, None)
