"""What a start puts off: the methods of dataclasses, and the names of packages.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class RecordMetadata:
        topic: str
        partition: int

`dataclass` has those options of the standard library that this project uses. The original compiles
six methods of each class while its module is imported. That takes half a millisecond, and for the
469 classes of a broker it was more than half of the import. Here the standard library only finds
the fields and makes the slots, in a tenth of that time. The first lookup of `__init__`, `__eq__` or
`__hash__` compiles it. From then on it is an ordinary function, as fast as the original. A start
uses a tenth of these methods. The remaining ones are shared by all classes.

A class made here and one of the standard library can inherit from each other, by its rules. What
no class of the project uses is refused: `InitVar`, and `field(hash=)`.

`late_names` is for a package that has names of many modules, of which a program uses few.
"""

import dataclasses
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from importlib import import_module
from reprlib import recursive_repr
from typing import Any, Final, TypeVar, dataclass_transform

T = TypeVar("T")


class _Factory:
    """The default of a parameter whose value a factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


FACTORY: Final = _Factory()


Fields = Sequence[Field[Any]]
Source = Callable[[type[Any], Fields], str]
"""The text of a method of a class with these fields."""


class LateMethod:
    """A method of a class that its first lookup compiles. The function then replaces this object.

    Two threads may compile it at the same time. Both get a function that does the same.
    """

    def __init__(self, cls: type[Any], name: str, source: Source) -> None:
        self._cls, self._name, self._source = cls, name, source

    def __get__(self, instance: object, owner: type[Any]) -> Any:
        method = self._compile()
        setattr(self._cls, self._name, method)
        return method.__get__(instance, owner)

    def _compile(self) -> Any:
        cls, declared = self._cls, fields(self._cls)
        names: dict[str, Any] = {"__FACTORY": FACTORY, "__set_field": object.__setattr__}
        for each in declared:
            names[f"__default_of_{each.name}"] = each.default
            names[f"__factory_of_{each.name}"] = each.default_factory
        # The globals of the method are those of the module, where its annotations are looked up.
        module = sys.modules.get(cls.__module__)
        body = textwrap.indent(f"{self._source(cls, declared)}\nreturn {self._name}", "    ")
        compiled: dict[str, Any] = {}
        exec(
            f"def make({', '.join(names)}):\n{body}",
            {} if module is None else vars(module),
            compiled,
        )
        method = compiled["make"](**names)
        method.__module__ = cls.__module__
        method.__qualname__ = f"{cls.__qualname__}.{self._name}"
        if self._name == "__init__":
            types = {each.name: each.type for each in declared if each.init}
            method.__annotations__ = {**types, "return": None}
        return method


def _init_source(cls: type[Any], declared: Fields, setter: str) -> str:
    """Return the text of `__init__`. `setter` is the form of a line that sets a field."""
    owner = "__self" if any(each.name == "self" for each in declared) else "self"
    given = [each for each in declared if each.init]
    parameters = [owner, *(_parameter(each) for each in given if not each.kw_only)]
    by_keyword = [_parameter(each) for each in given if each.kw_only]
    if by_keyword:
        parameters += ["*", *by_keyword]
    lines = [f"def __init__({', '.join(parameters)}):", "    pass"]
    lines += (
        "    " + setter.format(owner=owner, name=each.name, value=value)
        for each in declared
        for value in _values(each)
    )
    if hasattr(cls, "__post_init__"):
        lines.append(f"    {owner}.__post_init__()")
    return "\n".join(lines)


def _parameter(declared: Field[Any]) -> str:
    if declared.default is not MISSING:
        return f"{declared.name}=__default_of_{declared.name}"
    return declared.name if declared.default_factory is MISSING else f"{declared.name}=__FACTORY"


def _values(declared: Field[Any]) -> Iterator[str]:
    """Yield the expression that `__init__` sets a field to, if it sets it."""
    name = declared.name
    if declared.default_factory is not MISSING:
        made = f"__factory_of_{name}()"
        yield f"{made} if {name} is __FACTORY else {name}" if declared.init else made
    elif declared.init:
        yield name
    elif declared.default is not MISSING:
        yield f"__default_of_{name}"


def _init_source_of_frozen(cls: type[Any], declared: Fields) -> str:
    return _init_source(cls, declared, "__set_field({owner}, '{name}', {value})")


def _init_source_of_mutable(cls: type[Any], declared: Fields) -> str:
    return _init_source(cls, declared, "{owner}.{name} = {value}")


def _eq_source(cls: type[Any], declared: Fields) -> str:
    return (
        "def __eq__(self, other):\n"
        "    if other.__class__ is not self.__class__:\n"
        "        return NotImplemented\n"
        f"    return {_compared('self', declared)} == {_compared('other', declared)}"
    )


def _hash_source(cls: type[Any], declared: Fields) -> str:
    return f"def __hash__(self):\n    return hash({_compared('self', declared)})"


def _compared(owner: str, declared: Fields) -> str:
    """Return a tuple of the fields that count when two objects are compared."""
    return f"({''.join(f'{owner}.{each.name}, ' for each in declared if each.compare)})"


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _setattr(self: object, name: str, value: object) -> None:
    if _is_frozen(type(self), name):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _delattr(self: object, name: str) -> None:
    if _is_frozen(type(self), name):
        raise FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _is_frozen(cls: type[Any], name: str) -> bool:
    """Return False for an attribute that a plain class adds to the dataclass it derives from."""
    declared = "__dataclass_fields__"
    return declared in vars(cls) or name in getattr(cls, declared)


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(
    *,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
    eq: bool = True,
    repr: bool = True,
) -> Callable[[type[T]], type[T]]:
    """Make a class a dataclass. The options mean what they mean in the standard library."""

    def declare(cls: type[T]) -> type[T]:
        # The standard library compiles methods of a frozen class. Only a class that is derived from
        # a dataclass pays for that: then it finds whether both are frozen.
        says_frozen = frozen and hasattr(cls, "__dataclass_fields__")
        made: Any = dataclasses.dataclass(
            init=False, repr=False, eq=False, frozen=says_frozen, slots=slots, kw_only=kw_only
        )(cls)
        options = made.__dataclass_params__  # a class of the standard library may derive from it
        options.init, options.repr, options.eq, options.frozen = True, repr, eq, frozen
        _check(made)
        declared: type[T] = made
        return declared

    late = {"__init__": _init_source_of_frozen if frozen else _init_source_of_mutable}
    shared: dict[str, Any] = {}
    if eq:
        late["__eq__"] = _eq_source
    if eq and frozen:
        late["__hash__"] = _hash_source
    elif eq:
        shared["__hash__"] = None
    if repr:
        shared["__repr__"] = _repr
    if frozen:
        shared |= {"__setattr__": _setattr, "__delattr__": _delattr}
    if frozen and slots:
        shared |= {"__getstate__": _getstate, "__setstate__": _setstate}

    def make(cls: type[T]) -> type[T]:
        if cls.__doc__ is None:
            cls.__doc__ = cls.__name__  # or the standard library would put a signature there
        own = set(vars(cls))
        if "__eq__" in own and vars(cls).get("__hash__") is None:
            own.discard("__hash__")  # Python put None there, as the class has an `__eq__`
        made = declare(cls)
        for name, method in shared.items():
            if name not in own:
                setattr(made, name, method)
        for name, source in late.items():
            if name not in own:
                setattr(made, name, LateMethod(made, name, source))
        return made

    return make


def _check(made: Any) -> None:
    """Raise TypeError for a class that declares what is not done here."""
    declared, known = fields(made), made.__dataclass_fields__
    for each in declared:
        if each.hash is not None:
            raise TypeError(f"{made.__qualname__}.{each.name}: odradek.late has no field(hash=).")
    if len(known) == len(declared):
        return
    for name in known.keys() - {each.name for each in declared}:
        if "InitVar" in str(known[name].type):
            raise TypeError(f"{made.__qualname__}.{name}: odradek.late has no InitVar.")


def late_names(
    package: str, homes: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that imports its names when they are used.

    `homes` has the names of each module. A name stays in the package after its first use (PEP 562).
    The modules of the package that `homes` names are imported like the names.
    """
    home = {name: module for module, names in homes.items() for name in names}

    def import_name(name: str) -> object:
        if name not in home:
            if any(f"{each}.".startswith(f"{package}.{name}.") for each in homes):
                return import_module(f"{package}.{name}")
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(import_module(home[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home})

    return import_name, list_names
