"""A system that lets no thread start."""

import threading


def cannot_start(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
