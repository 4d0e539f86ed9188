"""The asyncio classes beside the trio ones: the same names, the same arguments, all of them."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from odradek import client
from odradek.client import aio, blocking
from tests.client.blocking.test_same_names import OF_THE_LOOP, methods_of

CLASSES = ["Admin", "Consumer", "Producer", "Transaction", "TransactionGroup", "TransactionPool"]


def awaited(a_class: type) -> dict[str, bool]:
    """Whether each method of a class is awaited. `bounded` makes plain functions of coroutines."""

    def unwrapped(method: Callable[..., Any]) -> bool:
        return inspect.iscoroutinefunction(inspect.unwrap(method))

    return {name: unwrapped(getattr(a_class, name)) for name in methods_of(a_class)}


@pytest.mark.parametrize("name", CLASSES)
def test_an_asyncio_class_has_the_methods_of_the_trio_one(name: str) -> None:
    ours, theirs = getattr(aio, name), getattr(client, name)
    names = methods_of(theirs).keys() - OF_THE_LOOP.get(name, set())
    parameters, are_awaited = methods_of(ours), awaited(ours)
    for method in names:
        assert parameters[method] == methods_of(theirs)[method], method
        assert are_awaited[method] == awaited(theirs)[method], method


@pytest.mark.parametrize("name", CLASSES)
def test_an_asyncio_class_has_the_properties_of_the_trio_one(name: str) -> None:
    def properties(a_class: type) -> set[str]:
        members = inspect.getmembers(a_class, lambda member: isinstance(member, property))
        return {member for member, _ in members if not member.startswith("_")}

    # `unacknowledged` is for the warning at the end of a process.
    assert properties(getattr(client, name)) - {"unacknowledged"} <= properties(getattr(aio, name))


def test_all_packages_have_the_same_names() -> None:
    assert aio.__all__ == client.__all__ == blocking.__all__
    shared = set(aio.__all__) - {*CLASSES, "Delivery"}
    assert all(getattr(aio, name) is getattr(client, name) for name in shared)


def test_they_share_their_documentation() -> None:
    assert aio.Admin.who_pins.__doc__ == client.Admin.who_pins.__doc__
    assert inspect.iscoroutinefunction(aio.Admin.who_pins)
