"""A proxy to PostgreSQL that cuts the connection at a COMMIT."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

COMMIT: Final = b"COMMIT\0"


def at_once() -> None:
    """Wait for nothing."""


@contextmanager
def cut_at_commit(
    port: int, *, delivered: bool, wait: Callable[[], None] = at_once
) -> Iterator[int]:
    """Serve one connection on a port, which is returned.

    With `delivered` the server gets the COMMIT, and its answer is lost. Else the COMMIT is lost.
    `wait` is called when the client has lost its connection and the server has not got the COMMIT.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_serve, args=(listening, port, delivered, wait))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            with suppress(OSError):  # it may still wait for a client
                listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listening: socket.socket, port: int, delivered: bool, wait: Callable[[], None]) -> None:
    with suppress(OSError):
        near, _ = listening.accept()
        with near, socket.create_connection(("127.0.0.1", port)) as far:
            is_cut = threading.Event()
            back = threading.Thread(target=_pass_back, args=(far, near, is_cut))
            back.start()
            with suppress(OSError):
                while data := near.recv(65_536):
                    if COMMIT in data:
                        is_cut.set()
                        near.shutdown(socket.SHUT_RDWR)
                        wait()
                        if not delivered:
                            break
                    far.sendall(data)
                    if is_cut.is_set():
                        far.shutdown(socket.SHUT_WR)  # it ends after it has committed
                        back.join()
                        break
            with suppress(OSError):
                far.shutdown(socket.SHUT_RDWR)
            back.join()


def _pass_back(far: socket.socket, near: socket.socket, is_cut: threading.Event) -> None:
    with suppress(OSError):
        while data := far.recv(65_536):
            if not is_cut.is_set():
                near.sendall(data)
