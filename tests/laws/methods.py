"""The law of how many methods a class has, and the classes that may have more."""

import ast
from collections.abc import Iterator
from typing import Final

from tests.laws.source import Function, Modules

METHODS_MAX: Final = 30

# classes that may have more methods, and why each of them is one thing all the same
MORE_METHODS: Final = {
    "client/blocking/consumer.py:Consumer": "23 are the public API, as trio's `Consumer` has it",
}


def large_classes(trees: Modules) -> dict[str, int]:
    """Return the number of methods of each class that has more than most may have.

    The getter and the setter of a property count as one, and so do the overloads of a method.
    """
    found = {}
    for module, tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names = {each.name for each in node.body if isinstance(each, Function)}
                if len(names) > METHODS_MAX:
                    found[f"{module}:{node.name}"] = len(names)
    return found


def too_many_methods(found: dict[str, int]) -> Iterator[str]:
    for place, count in found.items():
        if place not in MORE_METHODS:
            yield (
                f"{place} has {count} methods: a class has at most {METHODS_MAX}. Look for the "
                "second thing in it, and give that a class of its own, or MORE_METHODS the reason "
                "why it is one thing."
            )
    for place in sorted(MORE_METHODS.keys() - found.keys()):
        yield (
            f"{place} in MORE_METHODS: a class of at most {METHODS_MAX} methods needs no reason. "
            "Delete its line."
        )
