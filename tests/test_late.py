"""`odradek.late`: its dataclasses do what those of the standard library do, and compile late."""

import copy
import dataclasses
import inspect
import itertools
import sys
import threading
import xml
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, Final, get_type_hints

import pytest

from odradek import late
from odradek.late import LateMethod, late_names

CLASSES: Final = """
from dataclasses import field
from typing import ClassVar, Generic, TypeVar

T = TypeVar("T")

@dataclass(**options)
class Base(Generic[T]):
    first: T

@dataclass(**options)
class Shown(Base[T]):
    kind: ClassVar[str] = "shown"
    topic: str
    count: int = 7
    secret: str = field(default="s", repr=False)
    noted: str = field(default="n", compare=False)
    items: list[int] = field(default_factory=list)
    total: int = field(init=False, compare=False, default=0)
    seen: list[int] = field(init=False, compare=False, default_factory=lambda: [1])

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.count + 1)

@dataclass(**options)
class Hashed:
    topic: str

    def __hash__(self) -> int:
        return 5

    def __repr__(self) -> str:
        return "its own"

@dataclass(**options)
class Compared:
    topic: str

    def __eq__(self, other: object) -> bool:
        return True

@dataclass(**options)
class Named:
    self: str
    set_field: int = 3
    FACTORY: list[int] = field(default_factory=list)

    def __post_init__(itself) -> None:
        object.__setattr__(itself, "set_field", itself.set_field + 1)

@dataclass(**options)
class Empty:
    '''A class without a field.'''
"""
"""Each kind of field and of method that the project declares. `options` are given below."""

NAMES: Final = ("frozen", "slots", "kw_only", "eq")
THREADS: Final = 8


def declared(
    decorator: Callable[..., Callable[[type[Any]], type[Any]]], options: dict[str, bool]
) -> SimpleNamespace:
    names: dict[str, Any] = {"__name__": __name__, "dataclass": decorator, "options": options}
    exec(CLASSES, names)
    return SimpleNamespace(**names)


def outcome(act: Callable[[], object]) -> object:
    """Return what a call returns or raises, so that two of them compare."""
    try:
        return act()
    except Exception as error:
        return type(error), str(error)


def seen(classes: SimpleNamespace) -> Iterator[object]:
    """Yield what a program can see of the classes, as values that compare."""
    shown, base = classes.Shown, classes.Base
    one, same = (shown(first=1, topic="t", items=[2]) for _ in range(2))
    other = shown(first=1, topic="t", items=[3], count=8)
    noted = shown(first=1, topic="t", items=[2], noted="otherwise")
    for cls in (shown, base, classes.Hashed, classes.Empty):
        yield str(inspect.signature(cls))
        yield cls.__init__.__qualname__, cls.__match_args__, getattr(cls, "__slots__", None)
        yield [each.name for each in dataclasses.fields(cls)]
    yield from map(repr, (one, other, base(first="x"), classes.Hashed(topic="t"), classes.Empty()))
    yield one.seen, one.total, dataclasses.asdict(other)
    yield one == same, one != same, one == other, one == noted, one == base(first=1), one == 1
    yield classes.Empty() == classes.Empty(), hash(classes.Hashed(topic="t"))
    compared = [classes.Compared(topic=topic) for topic in ("t", "t", "u")]
    yield [
        outcome(partial(lambda each: hash(each) == hash(compared[0]), each)) for each in compared
    ]
    named, alike = (classes.Named(**{"self": "s", "FACTORY": [1]}) for _ in range(2))
    yield repr(named), named == alike, named.FACTORY is classes.Named(**{"self": "s"}).FACTORY
    yield str(base.__dataclass_params__)
    yield [callable(vars(shown).get(name)) for name in ("__getstate__", "__setstate__")]
    if not hasattr(shown, "__slots__"):
        noted_on = classes.Hashed(topic="t")
        vars(noted_on)["note"] = "n"
        yield vars(copy.copy(noted_on))
    yield outcome(lambda: hash(base(first=1)) == hash(base(first=1)))
    yield type(outcome(lambda: hash(one)))  # of a list, it raises; of the object, it is a number
    yield outcome(lambda: setattr(same, "count", 9)), same.count
    yield outcome(lambda: delattr(same, "count")), hasattr(same, "count")
    if not hasattr(shown, "__slots__"):  # the standard library then fails in super()
        yield outcome(lambda: setattr(other, "unknown", 1))
        derived = type("Derived", (shown,), {})(first=1, topic="t")
        yield outcome(lambda: setattr(derived, "unknown", 1)), hasattr(derived, "unknown")
        yield outcome(lambda: setattr(derived, "topic", "u")), derived.topic
    yield outcome(lambda: shown(first=1))
    yield outcome(lambda: shown(first=1, topic="t", unknown=1))
    yield outcome(lambda: shown(1, "t").topic)
    yield outcome(lambda: shown(first=1, topic="t").items is shown(first=1, topic="t").items)
    for copied in (copy.copy(one), copy.deepcopy(one), dataclasses.replace(one)):
        yield repr(copied), copied.seen, copied.total
    yield classes.Empty.__doc__


@pytest.mark.parametrize("values", list(itertools.product((False, True), repeat=len(NAMES))))
def test_a_class_does_what_one_of_the_standard_library_does(values: tuple[bool, ...]) -> None:
    options = dict(zip(NAMES, values, strict=True))
    ours, original = (
        list(seen(declared(decorator, options)))
        for decorator in (late.dataclass, dataclasses.dataclass)
    )
    assert ours == original


@pytest.mark.parametrize("first", [late.dataclass, dataclasses.dataclass])
@pytest.mark.parametrize("second", [late.dataclass, dataclasses.dataclass])
def test_frozen_classes_derive_from_each_other_and_not_from_mutable_ones(
    first: Any, second: Any
) -> None:
    """Seen: a program could not derive a frozen class of its own from a public one."""

    @first(frozen=True)
    class Frozen:
        topic: str

    @first()
    class Mutable:
        topic: str

    @second(frozen=True)
    class Derived(Frozen):
        count: int = 1

    make: Any = Derived
    derived = make("t", 2)
    assert (derived, hash(derived)) == (make("t", 2), hash(make("t", 2)))
    for name in ("topic", "count"):
        with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(derived, name, 3)
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        second()(type("Wrong", (Frozen,), {}))
    with pytest.raises(TypeError, match="cannot inherit frozen dataclass from a non-frozen one"):
        second(frozen=True)(type("Wrong", (Mutable,), {}))


def test_the_annotations_of_a_method_are_looked_up_in_the_module_of_its_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ModuleType("module_with_a_dataclass")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    vars(module)["dataclass"] = late.dataclass
    exec("class Topic: ...\n@dataclass()\nclass Kept:\n    topic: 'Topic'", vars(module))
    hints = get_type_hints(module.Kept.__init__)
    assert hints == {"topic": module.Topic, "return": type(None)}
    assert "__init__" not in vars(module)


def test_what_is_not_done_here_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.topic: odradek\.late has no field\(hash=\)"):

        @late.dataclass()
        class Wrong:
            kind: ClassVar[str] = "kept"
            topic: str = dataclasses.field(hash=False)

    for annotation in (dataclasses.InitVar[str], "dataclasses.InitVar[str]"):
        made = type("Wrong", (), {"__annotations__": {"topic": annotation}})
        made.__module__ = __name__
        with pytest.raises(TypeError, match=r"Wrong\.topic: odradek\.late has no InitVar"):
            late.dataclass()(made)


def test_a_method_is_compiled_when_it_is_first_used() -> None:
    cls = declared(late.dataclass, {"frozen": True, "slots": True}).Base
    methods = vars(cls)
    for name, use in (
        ("__init__", lambda: cls("t")),
        ("__eq__", lambda: cls("t") == cls("t")),
        ("__hash__", lambda: hash(cls("t"))),
    ):
        assert isinstance(methods[name], LateMethod)
        use()
        assert inspect.isfunction(methods[name])


def test_a_class_that_is_derived_without_a_field_uses_the_method_of_its_base() -> None:
    base = declared(late.dataclass, {"frozen": True}).Base
    derived = type("Derived", (base,), {})
    assert derived("t").first == "t"
    assert "__init__" not in vars(derived)
    assert inspect.isfunction(vars(base)["__init__"])


def test_threads_that_use_a_class_at_the_same_time_all_get_their_object() -> None:
    for _ in range(20):
        cls = declared(late.dataclass, {"frozen": True, "slots": True}).Shown
        together = threading.Barrier(THREADS)
        made: list[object] = []

        def make(cls: Any = cls, together: Any = together, made: Any = made) -> None:
            together.wait()
            made.append(cls("first", "t"))

        threads = [threading.Thread(target=make) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [cls("first", "t")] * THREADS


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package whose name `FrozenInstanceError` is that of the standard library."""
    made = ModuleType("package_with_late_names")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    homes = {"dataclasses": ("FrozenInstanceError",), "no.such.module": ("Missing",)}
    vars(made)["__getattr__"], vars(made)["__dir__"] = late_names(made.__name__, homes)
    return made


def test_a_name_of_a_package_is_imported_when_it_is_used_and_then_stays(
    package: ModuleType,
) -> None:
    assert {"FrozenInstanceError", "Missing", "__name__"} <= set(dir(package))
    assert "FrozenInstanceError" not in vars(package)
    assert package.FrozenInstanceError is dataclasses.FrozenInstanceError
    assert vars(package)["FrozenInstanceError"] is dataclasses.FrozenInstanceError


def test_a_module_of_a_package_that_has_a_name_is_imported_when_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = ModuleType("xml")
    monkeypatch.setitem(sys.modules, package.__name__, package)
    for name in ("xml.dom", "xml.dom.minidom"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    package.__path__ = list(xml.__path__)
    homes = {"xml.dom.minidom": ("parseString",)}
    vars(package)["__getattr__"], vars(package)["__dir__"] = late_names(package.__name__, homes)
    assert package.dom is sys.modules["xml.dom"]
    for name in ("do", "sax", "dom2"):
        with pytest.raises(AttributeError, match=f"'xml' has no attribute '{name}'"):
            getattr(package, name)


def test_a_name_that_a_package_does_not_have_is_an_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="'package_with_late_names' has no attribute 'other'"):
        _ = package.other
    with pytest.raises(ModuleNotFoundError, match="No module named 'no'"):
        _ = package.Missing
