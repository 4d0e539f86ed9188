"""The arguments of serializers and deserializers, and the ways to call them.

Both are functions of one argument, or of two: the second one is a `SerializationContext`. Which of
them a function is, is found out once, when the client is made. confluent-kafka's serializers take
the same two arguments, so they work here.

A function may be async, or return an awaitable now and then: a schema that is known is there at
once, another one comes from its registry. The awaitable is awaited where the program calls: under
trio, or in its asyncio event loop. The blocking clients await it in their own thread, under trio.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Literal, NamedTuple, Self, TypeVar

from odradek.client.errors import Refused
from odradek.client.types import ConsumerRecord, Header, TopicPartition, Value
from odradek.client.wording import shortened

T = TypeVar("T")

REASON_MAX: Final = 300
"""The characters of an exception that a message keeps: that of a codec has the whole value."""

Part = Literal["key", "value"]


class SerializationContext(NamedTuple):
    """The facts about a record that a serializer may need beside its key or value."""

    topic: str
    field: Part
    headers: list[Header]
    """The headers. What a serializer adds to them, or takes away, is sent so."""


Serializer = (
    Callable[[Value], bytes | Awaitable[bytes]] | Callable[[Value, Any], bytes | Awaitable[bytes]]
)
"""A function that returns the bytes of a key or a value.

Its second argument is a `SerializationContext`. Functions of confluent-kafka name a class of their
own, which has the same attributes.
"""

Deserializer = (
    Callable[[bytes], Value | Awaitable[Value]] | Callable[[bytes, Any], Value | Awaitable[Value]]
)
"""A function of bytes that returns a key or a value."""


def reason(error: BaseException) -> str:
    """Return what a function of the program has raised, for a message."""
    return shortened(repr(error), REASON_MAX)


class PoisonRecord(Refused):
    """A record whose key or value a deserializer cannot read.

    `record` has the place of the record and its bytes, which are `Serialized`: a producer sends
    them as they are. `part` is "key" or "value", and `__cause__` is the exception of the
    deserializer.
    """

    def __init__(self, record: ConsumerRecord[Any, Any], part: Part, cause: Exception) -> None:
        super().__init__(
            f"the {part} of {record.topic}-{record.partition} at offset {record.offset} cannot be "
            f"deserialized: {reason(cause)}; seek to {record.offset + 1} to go on behind it, or "
            f"give the consumer on_error"
        )
        self.topic = record.topic
        self.partition = record.partition
        self.offset = record.offset
        self.record = record.serialized()
        self.part: Part = part
        self.__cause__ = cause

    def copy(self) -> Self:
        """Return an equal error to raise elsewhere."""
        assert isinstance(self.__cause__, Exception)
        return type(self)(self.record, self.part, self.__cause__)

    @property
    def place(self) -> TopicPartition:
        """The topic and the partition, for `seek`."""
        return TopicPartition(self.topic, self.partition)


KEY_INDEX: Final = ConsumerRecord._fields.index("key")
"""The place of the key in a record. The value follows it."""

OnError = Callable[[PoisonRecord], object]
"""A function that decides about a poison record: it returns to skip it, or raises to stop."""

CONTEXT_NAMES: Final = ("context", "ctx")
"""The names of a second parameter that gets the context although it has a default."""


class Conversion:
    """A serializer or a deserializer, and how it is called."""

    __slots__ = ("function", "takes_context")

    def __init__(self, function: Callable[..., Any], *, takes_context: bool) -> None:
        self.function = function
        self.takes_context = takes_context

    def __call__(self, given: Any, topic: str, part: Part, headers: Sequence[Header]) -> Any:
        if self.takes_context:
            listed = headers if isinstance(headers, list) else list(headers)
            return self.function(given, SerializationContext(topic, part, listed))
        return self.function(given)


def conversion(name: str, function: Callable[..., Any] | None) -> Conversion | None:
    """Look at a function of the program once. Raises ValueError if it cannot be called so."""
    if function is None:
        return None
    if not callable(function):
        raise ValueError(
            f"{name} is a function of one argument, or of it and a SerializationContext, and "
            f"{function!r} was given"
        )
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C: it says nothing, and takes one argument
        return Conversion(function, takes_context=False)
    places = [each for each in parameters if each.kind in _POSITIONAL]
    needed = [each for each in places if each.default is inspect.Parameter.empty]
    takes_any = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)
    if len(needed) > 2 or not (places or takes_any):
        raise ValueError(
            f"{name} is a function of one argument, or of it and a SerializationContext, and "
            f"{function!r} takes {inspect.signature(function)}"
        )
    takes_context = len(needed) == 2 or (len(places) > 1 and places[1].name in CONTEXT_NAMES)
    return Conversion(function, takes_context=takes_context)


_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def is_awaitable(returned: object) -> bool:
    """Return True if the program's function has returned something to await."""
    return hasattr(type(returned), "__await__")


def dismiss(awaitable: object) -> None:
    """Drop a coroutine that is not awaited."""
    if inspect.iscoroutine(awaitable):
        awaitable.close()


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that does not wait: what it awaits is there, or blocks."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        returned: T = ended.value
        return returned
    raise AssertionError(f"{coroutine!r} waits")
