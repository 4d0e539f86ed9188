"""The section of access: users, entries, quotas, and the question why something is permitted."""

from collections.abc import Awaitable, Callable, Mapping
from math import isfinite
from typing import Final, get_args

import trio

from odradek.client.administration.acls import Acl, OperationWord, ResourceWord
from odradek.client.administration.admin import Admin
from odradek.client.cli.acl_words import because, never_counts
from odradek.client.cli.common import sentence
from odradek.client.errors import OdradekError, Refused
from odradek.client.web.board import Board
from odradek.client.web.poller import PageSource
from odradek.protocol.errors import ErrorCode
from odradek.protocol.text import printable

ROWS_MAX: Final = 500
"""The users, entries and quotas that are shown; the others are counted."""
TEXT_MAX: Final = 300
OPERATIONS: Final[Mapping[str, OperationWord]] = {word: word for word in get_args(OperationWord)}
RESOURCES: Final[Mapping[str, ResourceWord]] = {word: word for word in get_args(ResourceWord)}


class AccessSource(PageSource):
    section = "access"
    every_s = 10.0

    async def look(self, admin: Admin, board: Board) -> str | None:
        questions: list[tuple[str, Callable[[], Awaitable[dict[str, object]]]]] = [
            ("user", lambda: _users(admin)),
            ("acl", lambda: _entries(admin)),
            ("quota", lambda: _quotas(admin)),
        ]
        for section, question in questions:
            try:
                rows = await question()
            except Refused as error:  # a right is missing, or there is no access control
                is_off = error.code is ErrorCode.SECURITY_DISABLED
                board.put("refused", section, {"is_off": is_off, "text": sentence(str(error))})
                board.replace(section, {})
                continue
            board.remove("refused", section)
            board.put("count", section, len(rows))
            board.replace(section, dict(list(rows.items())[:ROWS_MAX]))
        return None


async def _users(admin: Admin) -> dict[str, object]:
    return {
        user.name: {"name": printable(user.name), "mechanisms": dict(user.mechanisms)}
        for user in await admin.describe_users()
    }


async def _entries(admin: Admin) -> dict[str, object]:
    return {"\0".join(each): _entry_facts(each) for each in await admin.describe_acls()}


def _entry_facts(entry: Acl) -> dict[str, object]:
    return {
        "resource": entry.resource.replace("_", " "),
        "name": printable(entry.name),
        "is_prefix": entry.pattern == "prefixed",
        "principal": printable(entry.principal),
        "host": printable(entry.host),
        "operation": entry.operation.replace("_", " "),
        "permission": entry.permission,
        "never_counts": never_counts(entry),
    }


async def _quotas(admin: Admin) -> dict[str, object]:
    rows: dict[str, object] = {}
    for each in await admin.describe_quotas():
        whose = [
            f"{what} {printable(name)}" if name else f"every other {what}"
            for what, name in (("user", each.user), ("client", each.client_id), ("ip", each.ip))
            if name is not None
        ]
        for key, value in sorted(each.values.items()):
            rows[f"{each[:3]} {key}"] = {
                "whose": " as ".join(whose),
                "quota": key,
                "value": value if isfinite(value) else None,  # JSON has no word for infinite
            }
    return rows


class WhyQuestion:
    """Says why a principal may do something, one question at a time."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._asking = trio.Lock()

    async def __call__(self, query: Mapping[str, str]) -> Mapping[str, object]:
        """Return the answer as a sentence. Raises ValueError for a word that does not exist."""
        principal, name = query.get("principal", ""), query.get("name", "")
        operation = OPERATIONS.get(query.get("operation", ""))
        resource = RESOURCES.get(query.get("resource", ""))
        if not principal.startswith("User:") or len(principal) > TEXT_MAX or len(name) > TEXT_MAX:
            raise ValueError("the principal is User:NAME")
        if operation is None or resource is None:
            raise ValueError("there is no such operation or resource")
        named = (name,) if resource != "cluster" else ()
        if named == ("",):
            raise ValueError("the name of the resource is missing")
        try:
            async with self._asking:
                decision = await self._admin.explain_access(
                    principal, operation, resource, *named, host=query.get("host") or "*"
                )
        except OdradekError as error:
            raise ValueError(str(error)) from None
        why = because(decision.reason, decision.acl, decision.is_allowed)
        return {"is_allowed": decision.is_allowed, "text": sentence(printable(why))}
