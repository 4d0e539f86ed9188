"""The law that clock, disk, threads and chance come through `Env`.

A simulation replays from its seed only if nothing else makes a run depend on the machine.
"""

import ast
from collections.abc import Iterator
from typing import Final

OUTSIDE: Final = {
    *("os", "time", "threading", "subprocess", "tempfile", "shutil", "secrets", "select"),
    *("random", "uuid.uuid1", "uuid.uuid4", "uuid.getnode", "trio.to_thread", "open"),
    *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today"),
    *("datetime.date.today", "multiprocessing", "concurrent.futures", "asyncio", "glob"),
    *("trio.run_process", "trio.lowlevel.open_process", "trio.open_file", "trio.Path"),
    *("trio.open_tcp_stream", "trio.open_tcp_listeners", "trio.serve_tcp", "trio.socket"),
    *("trio.open_ssl_over_tcp_stream", "trio.open_unix_socket", "trio.open_signal_receiver"),
    *("trio.from_thread", "urllib.request", "http.client", "socketserver"),
}
IMPURE: Final = {"trio", "socket", "time", "random", "os", "pathlib", "threading"}
"""The modules that a module which only decides has no use for."""
HARMLESS: Final = {"os.path", "os.strerror", "random.Random"}


def used_names(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted names that a module uses, as if it imported modules only."""
    known: dict[str, str] = {"open": "open"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            known |= {
                alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
            }
    for node in ast.walk(tree):
        rest: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            rest.insert(0, inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name) or not isinstance(inner.ctx, ast.Load):
            continue
        if inner.id in known:
            yield ".".join([known[inner.id], *rest])


def names_from_outside(tree: ast.Module) -> list[str]:
    """Return the names that a module uses past `Env`."""

    def is_below(name: str, names: set[str]) -> bool:
        return any(f"{name}.".startswith(f"{above}.") for above in names)

    return [
        name
        for name in used_names(tree)
        if is_below(name, OUTSIDE) and not is_below(name, HARMLESS) and name not in IMPURE
    ]
