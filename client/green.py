"""gevent and eventlet, which replace modules of Python's library by ones for their green threads.

The client runs trio in a thread of its own. That needs real threads and queues, and a real
`select`; with eventlet also real sockets. What replaces other modules does no harm. A call of the
blocking client then blocks all green threads of its thread until it returns.
"""

import socket
import sys
import threading
from typing import Final

GEVENT: Final = "gevent.monkey"
EVENTLET: Final = "eventlet.patcher"
SOCKET: Final = socket.socket
"""The class of sockets when the client was imported."""


def why_not(*, is_import: bool = False) -> str | None:
    """Return a sentence if the client cannot work with what is patched, and which arguments help.

    When trio is imported, its locks must not be patched either. eventlet always does that.
    """
    has_locks = not is_import or type(threading.RLock()).__module__ == "_thread"
    gevent, eventlet = sys.modules.get(GEVENT), sys.modules.get(EVENTLET)
    if gevent is not None:
        names = [
            name for name in ("select", "threading", "queue") if gevent.is_module_patched(name)
        ]
        if socket.socket is not SOCKET:  # trio must see the sockets that it will get
            names.append("socket, after odradek.client was imported")
        if names:
            return (
                f"gevent has patched {', '.join(names)}: call "
                "gevent.monkey.patch_all(select=False, thread=False, queue=False), and import "
                "odradek.client after that"
            )
    if eventlet is not None:
        names = [
            name for name in ("socket", "select", "thread") if eventlet.is_monkey_patched(name)
        ]
        if names or not has_locks:
            return (
                f"eventlet has patched {', '.join(names) or 'the locks of threads'}: import "
                "odradek.client first, and call eventlet.monkey_patch(socket=False, select=False, "
                "thread=False) after that"
            )
    return None


def check_import() -> None:
    """Raise ImportError if trio, which is imported next, cannot work with what is patched."""
    why = why_not(is_import=True)
    if why is not None:
        raise ImportError(why)
