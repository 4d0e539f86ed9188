from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

def call(function: Callable[[], T], microseconds: int, /) -> T: ...
