"""The text of a Python function that is generated, and the function."""

import builtins
import linecache
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

INDENT: Final = "    "


class FunctionText:
    """Gathers the lines of one function, the names of its locals and the objects it uses.

    code = FunctionText("double", ["number"], objects={"two": 2})
    code.line("return two * number")
    assert code.compiled()(4) == 8
    """

    def __init__(
        self,
        name: str,
        parameters: list[str],
        *,
        objects: Mapping[str, Any],
        locals: frozenset[str] = frozenset(),
        in_steps: bool = False,
    ) -> None:
        """`locals` are names that the lines use without asking `local` for them.

        `in_steps`: the function is a generator, which yields the number of its next steps.
        """
        self.name = name
        self.in_steps = in_steps
        self._lines = [f"def {name}({', '.join(parameters)}):"]
        self._depth = 1
        self._objects = dict(objects)
        self._taken = {name, *parameters, *objects, *locals, *dir(builtins)}

    @property
    def source(self) -> str:
        return "\n".join(self._lines) + "\n"

    def line(self, text: str) -> None:
        self._lines.append(INDENT * self._depth + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Append `opening`, and one level deeper what is appended inside."""
        self.line(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def local(self, wish: str) -> str:
        """Return a name that nothing else in the function has: `wish`, or `wish` and a number."""
        names = (wish if number == 1 else f"{wish}_{number}" for number in count(1))
        name = next(name for name in names if name not in self._taken)
        self._taken.add(name)
        return name

    def object(self, wish: str, value: object) -> str:
        """Return the name under which the function finds `value`."""
        for name, known in self._objects.items():
            if known is value:
                return name
        name = self.local(wish)
        self._objects[name] = value
        return name

    def compile(self) -> Callable[..., Any]:
        """Compile the function. Tracebacks show its lines."""
        file, source = f"<generated {self.name}>", self.source
        linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
        exec(compile(source, file, "exec"), self._objects)
        function: Callable[..., Any] = self._objects[self.name]
        return function
