"""The blocking classes beside the async ones: the same names, the same arguments."""

import inspect

import pytest

from odradek import client
from odradek.client import blocking

OF_THE_LOOP = {
    "Admin": {"serve"},
    "Producer": {"serve", "wait_for_room", "record_lost", "send_nowait"},
    "Consumer": {"serve", "positions", "wait_for_records"},
    "Transaction": {"check_open"},
    "TransactionGroup": {"serve"},
    "TransactionPool": {"serve"},
}
"""What belongs to trio, and what the blocking classes themselves use of the async ones."""


def methods_of(a_class: type) -> dict[str, list[inspect.Parameter]]:
    return {
        name: list(inspect.signature(method).parameters.values())[1:]
        for name, method in inspect.getmembers(a_class, callable)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    "name", ["Admin", "Consumer", "Producer", "Transaction", "TransactionGroup", "TransactionPool"]
)
def test_a_blocking_class_has_the_methods_of_the_async_one(name: str) -> None:
    ours = methods_of(getattr(blocking, name))
    for method, parameters in methods_of(getattr(client, name)).items():
        if method not in OF_THE_LOOP.get(name, ()):
            assert ours[method] == parameters, method


def test_they_share_their_documentation() -> None:
    assert blocking.Admin.who_pins.__doc__ == client.Admin.who_pins.__doc__
    assert not inspect.iscoroutinefunction(blocking.Admin.who_pins)
