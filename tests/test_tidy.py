"""Checks of the code itself: which way imports point, where I/O may be, how long things get."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# package -> the packages of this project that it may import
LAYERS = {"protocol": set[str](), "client": {"protocol"}, "broker": {"protocol"}}
# the doors between broker and client
DOORS = {
    ("broker/peer_connection.py", "client"),
    ("broker/peers.py", "client"),
    ("broker/cli.py", "client"),
}
# inside a package, a module or folder may import only what stands on a line above its own
LEVELS = {
    "protocol": (
        {"errors", "function_text", "schema", "text", "__init__"},
        {"batch", "streams", "varint"},
        {"compression", "kinds"},
        {"record", "wire"},
        {"api", "consumer_protocol", "control", "state_records", "state_topics"},
        {"apis"},
        {"connection"},
    ),
    "client": (
        {"errors", "green", "journal", "network"},
        {"types"},
        {"config"},
        {"cluster"},
        {"grouping"},
        {"producing", "consuming", "administration"},
        {"blocking"},
        {"aio"},
        {"postgres", "spark"},
        {"cli"},
        {"__init__"},
    ),
    "broker": (
        {"work"},
        {"collector", "env", "topic_partition", "client_identity", "member_ids", "turns"}
        | {"patterns", "repeats", "__init__"},
        {"storage", "config", "coordination", "system", "log_lines", "guarded_write"},
        {"partitions", "txn", "group"},
        {"cluster"},
        {"peer_connection"},
        {"replication", "roles", "local_coordinators"},
        {"api"},
        {"server", "peers", "membership"},
        {"broker"},
        {"process"},
        {"cli", "inspect", "completion"},
        {"__main__", "reference", "testing"},
    ),
}
LEVEL = {
    (package, name): level
    for package, levels in LEVELS.items()
    for level, names in enumerate(levels)
    for name in names
}
# modules that decide and never act (no task, clock, socket, disk, dice): they import only such ones
PURE = {
    "protocol": ("",),
    "client": (
        *("errors", "types", "cluster/metadata", "cluster/topic_ids"),
        "administration/descriptions",
        *(
            "producing/detached",
            "producing/prepared",
            "producing/state",
            "producing/transaction_errors",
        ),
        *("grouping/assignors", "grouping/state", "grouping/sticky", "grouping/subscriptions"),
        *("grouping/topics",),
        *("cli/txn_events", "cli/txn_picture", "cli/words"),
        *("spark/batch_decoder", "spark/batch_encoder", "spark/columns", "spark/messages"),
        *("spark/offsets", "spark/partitioner", "spark/progress", "spark/varints"),
    ),
    "broker": (
        *("client_identity", "member_ids", "repeats", "topic_partition", "work", "config"),
        *("server/failures",),
        *("cluster/image", "cluster/new_topic", "cluster/two_copies"),
        *("group/consumer", "group/checks", "group/offset_answers"),
        *("group/expiry", "group/limits", "group/members", "group/offsets", "group/requests"),
        *(
            "group/state",
            "group/store",
            "partitions/unopened",
            "partitions/openers",
            "partitions/lead",
        ),
        *("inspect/dump_words", "inspect/inspection", "reference/configuration"),
        *("storage/aborted", "storage/config", "storage/index", "storage/leader_epochs"),
        *("storage/producers", "storage/snapshot", "storage/compaction/batches"),
        *("storage/compaction/key_map", "storage/compaction/raw_records"),
        *("storage/compaction/transactions", "txn/config", "txn/events", "txn/explain"),
        *("txn/moves", "txn/presence", "txn/state", "txn/store", "txn/transaction"),
    ),
}
PURE_PATHS = {f"{package}/{name}".rstrip("/") for package, names in PURE.items() for name in names}
IMPURE = {"trio", "socket", "time", "random", "os", "pathlib", "threading"}
# calls that only the named modules may make
ADDRESSES = {
    "socket": ("broker/system.py", "client/", "broker/testing.py"),
    "threading": ("broker/storage/disk.py", "client/blocking", "client/green.py"),
    "gc": ("broker/collector.py",),
    "httpx2": ("broker/cluster/etcd_connections.py", "broker/cluster/etcd_gateway.py"),
    "ssl": ("broker/cluster/etcd_gateway.py",),
}
CONSTRUCT = "protocol/kinds.py"
# what makes a run depend on the machine: a simulation replays from its seed only without them
OUTSIDE = {
    *("os", "time", "threading", "subprocess", "tempfile", "shutil", "secrets", "select"),
    *("random", "uuid.uuid1", "uuid.uuid4", "uuid.getnode", "trio.to_thread", "open"),
    *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today"),
    *("datetime.date.today", "multiprocessing", "concurrent.futures", "asyncio", "glob"),
    *("trio.run_process", "trio.lowlevel.open_process", "trio.open_file", "trio.Path"),
    *("trio.open_tcp_stream", "trio.open_tcp_listeners", "trio.serve_tcp", "trio.socket"),
    *("trio.open_ssl_over_tcp_stream", "trio.open_unix_socket", "trio.open_signal_receiver"),
    *("trio.from_thread", "urllib.request", "http.client", "socketserver"),
}
HARMLESS = {"os.path", "os.strerror", "random.Random"}
# where they may be: the implementations of `Env`, and what starts a process or is one
OUTSIDE_ALLOWED = (
    *("broker/system.py", "broker/storage/disk.py"),
    *("broker/cli.py", "broker/process.py", "broker/testing.py", "broker/log_lines.py"),
    *("broker/inspect/log_command.py", "broker/inspect/storage_command.py"),
    *("client/config.py", "client/blocking/", "client/aio/", "client/cli/", "client/spark/"),
    *("client/postgres/", "client/consuming/spool.py", "client/green.py"),
)

# how no docstring begins: its first line is an imperative sentence or a noun phrase, not a riddle
RIDDLE = re.compile(
    r"(How|Tell|What|When|Where|Whether|Which|Who|Whose|Why|This (class|function|method|module))\b"
)

# public classes that two modules may define, and why a reader is not led astray
NAMESAKES = {
    **dict.fromkeys(
        ("Admin", "Consumer", "Delivery", "Producer", "Transaction", "TransactionGroup"),
        "the public client and its counterparts in `client/blocking/` and `client/aio/`",
    ),
    "Subscriber": "a member as an assignor sees it: those of the client, and those of the broker",
    **dict.fromkeys(
        ("PostgresProducer", "PostgresTransaction"),
        "the trio classes and their blocking counterparts have the same names",
    ),
    **dict.fromkeys(
        ("EpochEndOffset", "LeaderIdAndEpoch", "NodeEndpoint"),
        "Kafka's schemas of two APIs name parts of their messages alike",
    ),
    **dict.fromkeys(
        ("ProducerIdAndEpoch", "TopicPartition"),
        "the same value in broker and client, which share nothing but the protocol",
    ),
}

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 500

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def modules() -> list[tuple[str, ast.Module]]:
    return [
        (path.relative_to(ROOT).as_posix(), ast.parse(path.read_text()))
        for package in LAYERS
        for path in sorted((ROOT / package).rglob("*.py"))
    ]


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def climbs(package: str, inside: str, imported: str) -> bool:
    """Return True if a part of a package imports another one that is not on a lower level."""
    level = LEVEL.get((package, imported), len(LEVEL))
    return imported != inside and LEVEL[package, inside] <= level


def is_pure(path: str) -> bool:
    """Return True if a module, or what it defines, is named as pure."""
    parts = path.removesuffix(".py").split("/")
    return any("/".join(parts[:count]) in PURE_PATHS for count in range(1, len(parts) + 1))


def wrong_imports(module: str, tree: ast.Module) -> Iterator[str]:
    package, _, rest = module.partition("/")
    inside = rest.split("/")[0].removesuffix(".py")
    for name in imports(tree):
        parts = name.split(".")
        if parts[0] == "odradek" and len(parts) > 1:
            if parts[1] not in LAYERS[package] | {package} and (module, parts[1]) not in DOORS:
                yield f"{module} imports {name}"
            if package == parts[1] and climbs(package, inside, parts[2]):
                yield f"{module} imports {name}"
        if is_pure(module) and parts[0] in IMPURE:
            yield f"{module} imports {name}"
        if is_pure(module) and parts[0] == "odradek" and not is_pure("/".join(parts[1:])):
            yield f"{module} imports {name}"
        if parts[0] == "construct" and module != CONSTRUCT:
            yield f"{module} imports {name}"
        if parts[0] in ADDRESSES and not module.startswith(ADDRESSES[parts[0]]):
            yield f"{module} imports {name}"


def tasks(module: str, tree: ast.Module) -> list[str]:
    return [
        f"{module} may wait in {node.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFunctionDef) and is_pure(module)
    ]


def test_a_pure_module_never_waits() -> None:
    assert [found for module, tree in modules() for found in tasks(module, tree)] == []


def test_a_pure_module_that_waits_is_seen() -> None:
    assert tasks("broker/txn/state.py", ast.parse("async def f(): ...")) != []


def test_every_pure_name_is_a_module_or_a_folder() -> None:
    there = {module.removesuffix(".py") for module, _ in modules()}
    there |= {module.rpartition("/")[0] for module, _ in modules()}
    assert there >= PURE_PATHS


def test_imports_point_one_way() -> None:
    assert [wrong for module, tree in modules() for wrong in wrong_imports(module, tree)] == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("client/producing/producer.py", "from odradek.broker import config"),
        ("client/consuming/fetcher.py", "from odradek.client.producing.batches import Batch"),
        ("client/cluster/cluster.py", "from odradek.client.producing import sender"),
        ("client/types.py", "from odradek.client import Producer"),
        ("client/producing/state.py", "import trio"),
        ("broker/txn/state.py", "from odradek.broker.txn.coordinator import Initialised"),
        ("protocol/batch.py", "import time"),
        ("protocol/record.py", "from odradek.protocol.connection import FrameReader"),
        ("broker/storage/log.py", "from odradek.broker.api import HANDLERS"),
        ("broker/api/produce.py", "import construct"),
        ("broker/storage/log.py", "from odradek.broker.partitions.partition import Partition"),
        ("broker/partitions/watch.py", "from odradek.broker.txn import state"),
        ("broker/env.py", "from odradek.broker import system"),
        ("broker/txn/coordinator.py", "import socket"),
        ("broker/process.py", "import gc"),
        ("broker/cluster/store_etcd.py", "import httpx2"),
    ],
)
def test_a_wrong_import_is_seen(module: str, line: str) -> None:
    assert list(wrong_imports(module, ast.parse(line))) != []


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


def banned_names(module: str, tree: ast.Module) -> list[str]:
    if module.startswith(OUTSIDE_ALLOWED):
        return []

    def is_below(name: str, names: set[str]) -> bool:
        return any(f"{name}.".startswith(f"{above}.") for above in names)

    return [
        f"{module} uses {name}"
        for name in used_names(tree)
        if is_below(name, OUTSIDE) and not is_below(name, HARMLESS) and name not in IMPURE
    ]


def test_clock_disk_threads_and_chance_come_through_the_environment() -> None:
    """The client connects over TCP in a single place, which its option `connect` replaces."""
    found = [name for module, tree in modules() for name in banned_names(module, tree)]
    assert found == ["client/network.py uses trio.open_tcp_stream"]


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.monotonic()",
        "from time import time_ns\ntime_ns()",
        "import os\nos.fsync(1)",
        "import random as dice\ndice.random()",
        "from random import choice\nchoice([1])",
        "import uuid\nuuid.uuid4()",
        "from uuid import uuid4\nuuid4()",
        "import trio\ntrio.to_thread.run_sync(print)",
        "import trio\ntrio.open_tcp_stream('broker2', 9092)",
        "from trio import run_process\nrun_process(['hostname'])",
        "from datetime import date\ndate.today()",
        "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor()",
        "from urllib.request import urlopen\nurlopen('http://etcd:2379')",
        "open('x')",
    ],
)
def test_a_banned_name_is_seen(text: str) -> None:
    assert banned_names("broker/txn/coordinator.py", ast.parse(text)) != []


def import_cycle(graph: dict[str, list[str]]) -> list[str]:
    """Return the modules of one import cycle, in the order of the imports; [] if there is none."""
    is_done: dict[str, bool] = {}
    path: list[str] = []

    def visit(module: str) -> list[str]:
        if module in is_done:
            return [] if is_done[module] else path[path.index(module) :]
        is_done[module] = False
        path.append(module)
        for imported in graph.get(module, ()):
            if cycle := visit(imported):
                return cycle
        path.pop()
        is_done[module] = True
        return []

    return next((cycle for module in graph if (cycle := visit(module))), [])


def at_run_time(tree: ast.Module) -> ast.Module:
    """Return the module without what only a type checker imports."""
    body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    return ast.Module(body=body, type_ignores=[])


def import_graph(package: str) -> dict[str, list[str]]:
    trees = {
        "odradek." + module.removesuffix(".py").removesuffix("/__init__").replace("/", "."): (
            at_run_time(tree)
        )
        for module, tree in modules()
        if module.startswith(f"{package}/")
    }
    return {
        module: [
            found
            for name in imports(tree)
            # a name is a module, or something in the module before its last dot
            for found in (name if name in trees else name.rpartition(".")[0],)
            if found in trees and found != module
        ]
        for module, tree in trees.items()
    }


@pytest.mark.parametrize("package", LAYERS)
def test_no_module_imports_itself_by_way_of_others(package: str) -> None:
    assert import_cycle(import_graph(package)) == []


def test_an_import_cycle_is_seen() -> None:
    assert import_cycle({"a": ["b"], "b": ["c", "d"], "d": ["b"]}) == ["b", "d"]


def wrong_docstrings(module: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function):
            text = ast.get_docstring(node)
            first = text.partition("\n")[0] if text else ""
            if text is not None and (RIDDLE.match(first) or not first.endswith(".")):
                yield f"{module}: {first!r}"


def test_the_first_line_of_a_docstring_is_a_plain_sentence() -> None:
    assert [wrong for module, tree in modules() for wrong in wrong_docstrings(module, tree)] == []


@pytest.mark.parametrize(
    "line",
    [
        "Whether the log is due.",
        "How many logs were compacted.",
        "This function returns the log.",
        "Return the log",
        "Return the log, which is closed\nwhen the broker stops.",
        "",
    ],
)
def test_a_docstring_of_another_form_is_seen(line: str) -> None:
    function = f'def f() -> None:\n    """{line}"""'
    assert list(wrong_docstrings("broker/broker.py", ast.parse(function))) != []


def namesakes(trees: list[tuple[str, ast.Module]]) -> dict[str, list[str]]:
    """Return the modules of each public class name that is defined in two of them."""
    found: dict[str, list[str]] = {}
    for module, tree in trees:
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(module)
    return {name: where for name, where in found.items() if len(where) > 1}


def test_a_class_name_stands_for_one_concept() -> None:
    found = namesakes(modules())
    assert {name: where for name, where in found.items() if name not in NAMESAKES} == {}
    assert NAMESAKES.keys() <= found.keys(), "a name that is defined once needs no reason"


def test_a_class_with_the_name_of_another_is_seen() -> None:
    trees = [
        ("broker/txn/events.py", ast.parse("class Event: ...\nclass _Entry: ...")),
        ("broker/group/state.py", ast.parse("class Event: ...\nclass _Entry: ...")),
    ]
    assert list(namesakes(trees)) == ["Event"]


def test_nothing_grows_too_long() -> None:
    too_long = []
    for module, tree in modules():
        lines = len((ROOT / module).read_text().splitlines())
        if lines > MODULE_LINES_MAX:
            too_long.append(f"{module} has {lines} lines")
        for node in ast.walk(tree):
            if isinstance(node, Function):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    too_long.append(f"{module}:{node.name} has {lines} lines")
    assert too_long == []


NURSERIES = {"client/cluster/nursery.py", "client/blocking/loop.py"}
"""The modules of the client that open nurseries of trio. Ctrl-C never strikes the second's."""


def test_nurseries_of_the_client_are_those_that_ctrl_c_does_not_strike() -> None:
    opened = {
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "client").rglob("*.py"))
        if "open_nursery(" in path.read_text()
    }
    assert opened == NURSERIES


def test_no_tracked_file_names_a_path_of_one_machine() -> None:
    scripts = [path for path in (ROOT / "scripts").iterdir() if path.is_file()]
    for path in [*scripts, ROOT / "README.md", ROOT / "pyproject.toml"]:
        assert "/root/" not in path.read_text(), path


def bare_codes(module: str, tree: ast.Module) -> Iterator[str]:
    """Yield the places where a message to a person has an error code as a number."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FormattedValue):
            shown = [node.value]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("LOGGER."):
            shown = node.args
        else:
            continue
        for value in shown:
            if ast.unparse(value).rpartition(".")[2] in ("code", "error_code"):
                yield f"{module}:{node.lineno} shows {ast.unparse(value)}: say `name_of` it"


def test_a_person_reads_the_names_of_error_codes_and_not_their_numbers() -> None:
    in_names = {"protocol/errors.py", "protocol/kinds.py"}  # name_of itself; a type of construct's
    wrong = [
        found
        for module, tree in modules()
        for found in bare_codes(module, tree)
        if module not in in_names
    ]
    assert wrong == []


def test_a_bare_error_code_is_seen() -> None:
    for line in ('LOGGER.info("%s", answer.error_code)', 'f"error {refused.code}"'):
        assert list(bare_codes("broker/peers.py", ast.parse(line))) != []
