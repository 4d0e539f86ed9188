"""Does an answer have an error, anywhere? A request may fail as a whole, or in some of its parts.

What to look at follows from the declaration of an answer, and is found once for each.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Final

ERROR: Final = "error_code"
Looks = Callable[[Any], Any]
"""Returns something true if a message has an error."""


def has_error(answer: Any) -> bool:
    """Return True if an answer has an error code that is not 0, or an item of it has one."""
    message: Any = type(answer)
    looks = _looks_of(message)
    return looks is not None and bool(looks(answer))


@cache
def _looks_of(message: Any) -> Looks | None:
    """Return what looks into messages of a class; None if none of them can have an error."""
    if not is_dataclass(message):
        return None
    looks: list[Looks] = []
    for each in fields(message):
        kind = each.metadata.get("type")
        if kind is None:
            continue
        inside = _looks_of(kind.item) if isinstance(kind.item, type) else None
        if each.name == ERROR:
            looks.insert(0, attrgetter(ERROR))
        elif inside is not None and kind.kind == "array":
            looks.append(_in_all(attrgetter(each.name), inside))
        elif inside is not None:
            looks.append(_in_one(attrgetter(each.name), inside))
    if len(looks) < 2:
        return looks[0] if looks else None
    return lambda answer: any(look(answer) for look in looks)


def _in_all(get: Callable[[Any], Iterable[Any] | None], looks: Looks) -> Looks:
    return lambda answer: any(map(looks, get(answer) or ()))


def _in_one(get: Callable[[Any], Any], looks: Looks) -> Looks:
    def look(answer: Any) -> Any:
        found = get(answer)
        return found is not None and looks(found)

    return look
