"""What `help` and the reference show: each public name and each option is documented."""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Final

import pytest

from odradek import client
from odradek.client import aio, blocking
from odradek.client.config import ClientConfig, ConsumerConfig, ProducerConfig

CONFIGS: Final = {"Admin": ClientConfig, "Consumer": ConsumerConfig, "Producer": ProducerConfig}
FAMILIES: Final = ("ssl_", "sasl_")
"""How the names of options begin that only `Admin` lists one by one."""
OPTION: Final = re.compile(r"^ *- `(\w+)` \((.+?)\):", re.MULTILINE)


def public_classes() -> Iterator[type]:
    for module in (client, aio, blocking):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found):
                yield found


def own_functions(cls: type) -> Iterator[tuple[str, object]]:
    """Yield the public methods and properties that this project declares."""
    for name in dir(cls):
        found = inspect.getattr_static(cls, name)
        function = found.fget if isinstance(found, property) else inspect.unwrap(found)
        module = getattr(function, "__module__", None) or ""
        is_ours = inspect.isroutine(function) and module.startswith("odradek")
        if is_ours and not name.startswith("_"):
            yield name, function


@pytest.mark.parametrize(
    "cls", list(public_classes()), ids=lambda cls: f"{cls.__module__}.{cls.__name__}"
)
def test_a_public_class_and_its_methods_have_docstrings(cls: type) -> None:
    assert inspect.getdoc(cls)
    assert [name for name, found in own_functions(cls) if not inspect.getdoc(found)] == []


def test_methods_are_found() -> None:
    assert {"send", "flush", "producer_id"} <= {name for name, _ in own_functions(client.Producer)}
    assert {"send", "partitions_for"} <= {name for name, _ in own_functions(blocking.Producer)}


@pytest.mark.parametrize("module", [client, aio, blocking], ids=lambda module: module.__name__)
@pytest.mark.parametrize("name", CONFIGS)
def test_help_shows_every_option_and_its_default(module: object, name: str) -> None:
    text = inspect.getdoc(getattr(module, name).__init__) or ""
    described = dict(OPTION.findall(text))
    fields = {field.name: field for field in dataclasses.fields(CONFIGS[name])}
    families = tuple(each for each in FAMILIES if f"`{each}*`" in text)
    assert [
        option for option in fields if f"`{option}`" not in text and not option.startswith(families)
    ] == []
    for option, default in described.items():
        assert fields[option].default == eval(default, {}), option


@pytest.mark.parametrize("name", CONFIGS)
def test_options_with_a_default_that_can_be_written_have_a_description(name: str) -> None:
    own = dataclasses.fields(CONFIGS[name])
    inherited = set() if name == "Admin" else {f.name for f in dataclasses.fields(ClientConfig)}
    described = dict(OPTION.findall(inspect.getdoc(getattr(client, name).__init__) or ""))
    plain = (str, int, float, bool, type(None))
    assert set(described) == {
        field.name
        for field in own
        if field.name not in inherited and isinstance(field.default, plain)
    }
