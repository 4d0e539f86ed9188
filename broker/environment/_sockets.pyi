import select
from typing import Final

UNTRIED: Final[int]

def receive(
    epoll: select.epoll, memory: memoryview, start: int, room: int, count: int, /
) -> list[tuple[int, int, int]]: ...
