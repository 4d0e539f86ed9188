"""The laws of the code: which way imports point, and where I/O may be.

What the laws know of this project stands here; how a broken one is found, in `tests/laws/`. The
laws of the text are in `tests/laws/test_wording.py`.
Each finding says the place, the law, and what to do.
"""

import ast
from collections.abc import Iterator

import pytest

from tests.laws.cycles import import_cycle, import_graph
from tests.laws.outside import IMPURE, names_from_outside
from tests.laws.source import ROOT, imports, modules, require_none, texts_below

# what stands in `.ns/odradek/` beside the links to the packages, and every module may import
ROOT_NAMES = {"__version__", "extras", "late"}
# and pure modules may, too
PURE_AT_ROOT = {"late"}
# package -> the packages of this project that it may import
LAYERS = {"protocol": set[str](), "client": {"protocol"}, "broker": {"protocol"}}
# the doors between broker and client
DOORS = {
    ("broker/cluster/peer_connection.py", "client"),
    ("broker/cluster/peer_login.py", "client"),
    ("broker/membership/peers.py", "client"),
    ("broker/cli.py", "client"),
    ("broker/testing.py", "client"),
    ("broker/commands/ping.py", "client"),
    ("broker/commands/user.py", "client"),
    ("broker/inspect/backup_command.py", "client"),
    ("broker/environment/tls_connection.py", "client"),
    ("broker/environment/encrypted_socket.py", "client"),
    ("broker/oauth/key_places.py", "client"),
    ("broker/tls/listener_tls.py", "client"),
    ("broker/tls/secret_text.py", "client"),
}
# inside a package, a module or folder may import only what stands on a line above its own
LEVELS = {
    "protocol": (
        {
            *("errors", "function_text", "http_server_end", "jaas", "keystores", "properties"),
            *("quantities", "schema", "text", "__init__"),
        },
        {"batch", "log_formats", "scram", "streams", "varint"},
        {"compression", "kinds"},
        {"record", "wire"},
        {"api", "consumer_protocol", "control", "kraft_records", "state_records", "state_topics"},
        {"apis"},
        {"connection", "plain_produce", "produce_batches"},
    ),
    "client": (
        {"errors", "green", "journal", "network", "options", "public_names", "wording"},
        {"types", "tls"},
        {"arguments", "sasl", "serialization", "statistics", "tracing"},
        {"security_options"},
        {"config"},
        {"cluster", "security_settings"},
        {"grouping"},
        {"administration"},
        {"producing", "consuming"},
        {"blocking"},
        {"aio"},
        {"postgres", "schemas", "spark"},
        {"cli"},
        {"web"},
        {"__init__"},
    ),
    "broker": (
        {"environment", "security", "values", "__init__"},
        {"storage", "config", "coordination"},
        {"oauth", "partitions", "quotas", "tls", "txn", "group"},
        {"cluster"},
        {"replication"},
        {"api"},
        {"server", "membership"},
        {"metrics"},
        {"broker", "page_process"},
        {"process"},
        {"cli", "inspect"},
        {"commands"},
        {"testing_certificate"},
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
        *("arguments", "errors", "options", "statistics", "types", "wording"),
        *("cluster/metadata", "cluster/strangers", "cluster/topic_ids"),
        *("administration/descriptions", "administration/pin_words"),
        *(
            "producing/detached",
            "producing/prepared",
            "producing/state",
            "producing/transaction_errors",
        ),
        *("grouping/assignors", "grouping/state", "grouping/sticky", "grouping/subscriptions"),
        *("grouping/topics",),
        *("cli/tables", "cli/txn_events", "cli/txn_picture", "cli/words"),
        *("web/board", "web/guard", "web/lags", "web/lanes"),
        *("serialization", "schemas/avro_text", "schemas/registered", "schemas/subjects"),
        "schemas/wire",
        *("spark/batch_decoder", "spark/batch_encoder", "spark/columns", "spark/messages"),
        *("spark/errors", "spark/offsets", "spark/partitioner", "spark/progress", "spark/varints"),
    ),
    "broker": (
        *("security", "values", "environment/repeats", "environment/work", "config"),
        *("oauth/first_message", "oauth/signing_keys", "oauth/tokens", "server/failures"),
        *("cluster/image", "cluster/new_topic", "cluster/two_copies"),
        *("quotas/entities", "quotas/rates"),
        *("group/consumer", "group/request_checks", "group/offset_answers"),
        *("group/offset_expiry", "group/limits", "group/classic_group", "group/stored_offsets"),
        *(
            "group/member_requests",
            "group/state",
            "group/store",
            "partitions/unopened",
            "partitions/openers",
            "partitions/in_sync_view",
        ),
        *("inspect/dump_words", "inspect/inspection", "reference/configuration"),
        *("reference/fenced_story", "reference/partition_row", "reference/svg"),
        *("storage/aborted", "storage/config", "storage/index", "storage/leader_epochs"),
        *(
            "storage/producer_entry",
            "storage/producers",
            "storage/snapshot",
            "storage/compaction/batches",
        ),
        *("storage/compaction/key_map", "storage/compaction/raw_records"),
        *("storage/compaction/transactions", "txn/config", "txn/events", "txn/explain"),
        *("txn/moves", "txn/presence", "txn/state", "txn/store", "txn/transaction"),
    ),
}
PURE_PATHS = {f"{package}/{name}".rstrip("/") for package, names in PURE.items() for name in names}
# calls that only the named modules may make
ADDRESSES = {
    "socket": (
        "broker/commands/ping.py",
        "broker/environment/encrypted_socket.py",
        "broker/environment/reactor.py",
        "broker/environment/socket_end.py",
        "broker/environment/system.py",
        *("broker/environment/tls_connection.py", "broker/page_process.py"),
        "client/",
        "broker/testing.py",
    ),
    "threading": (
        *("broker/environment/giving_way.py", "broker/environment/threads.py"),
        *("client/blocking", "client/green.py"),
    ),
    "gc": ("broker/environment/collector.py",),
    "httpx2": (
        *("broker/cluster/etcd_connections.py", "broker/cluster/etcd_gateway.py"),
        *("broker/oauth/key_places.py", "client/sasl/token_endpoint.py", "client/schemas/"),
    ),
    "joserfc": ("broker/oauth/",),
    "opentelemetry": ("broker/environment/otel.py", "broker/txn/spans.py", "client/tracing.py"),
    "ssl": (
        *("broker/cluster/etcd_gateway.py", "broker/oauth/key_places.py"),
        "client/schemas/registry.py",
        *("broker/environment/env.py", "broker/environment/tls_connection.py"),
        "broker/environment/encrypted_socket.py",
        *("broker/tls/", "client/tls/", "client/sasl/token_endpoint.py"),
        *("client/security_options.py", "client/web/entrance.py"),
    ),
    "psycopg": ("client/postgres/",),
    **dict.fromkeys(("pyspark", "pyarrow", "numpy"), ("client/spark/",)),
    **dict.fromkeys(
        ("anyio", "fastavro", "google", "jsonschema", "referencing"), ("client/schemas/",)
    ),
}
CONSTRUCT = "protocol/kinds.py"
# where they may be: the implementations of `Env`, and what starts a process or is one
OUTSIDE_ALLOWED = (
    *("broker/environment/reactor.py", "broker/environment/system.py", "broker/storage/disk.py"),
    *("broker/environment/compiled.py", "broker/storage/fsyncs.py"),
    "broker/environment/ready_sockets.py",
    *("broker/environment/tls_connection.py", "broker/environment/handshake_threads.py"),
    *("broker/environment/threads.py", "broker/environment/giving_way.py"),
    "broker/environment/encrypted_socket.py",
    *("broker/tls/listener_tls.py", "client/tls/"),
    "broker/oauth/key_places.py",
    *(
        "broker/commands/adopt.py",
        "broker/commands/security.py",
        "broker/commands/stored_metadata.py",
        "broker/commands/user.py",
        "broker/cli.py",
        "broker/commands/ping.py",
        *("broker/page_process.py", "broker/process.py"),
        "broker/testing.py",
        "broker/testing_certificate.py",
        "broker/environment/allocator.py",
        "broker/environment/log_lines.py",
        "broker/environment/otel.py",
        "broker/environment/service_manager.py",
    ),
    *("broker/inspect/log_command.py", "broker/inspect/storage_command.py"),
    *("broker/inspect/backup_command.py", "broker/inspect/importing/command.py"),
    *("broker/inspect/new_directory.py", "broker/inspect/progress.py"),
    *("client/config.py", "client/blocking/", "client/aio/", "client/cli/", "client/spark/"),
    *(
        "client/sasl/",
        "client/security_options.py",
        "client/security_settings.py",
        "client/postgres/",
        "client/consuming/spool.py",
        *("client/green.py", "client/web/command.py", "client/web/entrance.py"),
    ),
)

# the client connects over TCP here, and its option `connect` replaces it
CONNECTS = "client/network.py"


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
        top, *parts = name.split(".")
        found = f"{module} imports {name}:"
        if top == "odradek" and parts and parts[0] not in ROOT_NAMES:
            allowed = LAYERS[package] | {package}
            if parts[0] not in allowed and (module, parts[0]) not in DOORS:
                yield (
                    f"{found} {package}/ imports only {' and '.join(sorted(allowed))}. Move what "
                    "both need to protocol/, or hand it over as an argument."
                )
            if package == parts[0] and climbs(package, inside, parts[1]):
                yield (
                    f"{found} in {package}/ a part imports only parts on a line above its own in "
                    "LEVELS. Move what both need further up, or hand it over as an argument."
                )
        is_of_ours = top == "odradek" and parts[:1] and parts[0] not in PURE_AT_ROOT
        if is_pure(module) and is_of_ours and not is_pure("/".join(parts)):
            yield (
                f"{found} a module of PURE imports only such modules. Make the other one pure, or "
                "hand over what it returns."
            )
        if is_pure(module) and top in IMPURE:
            yield (
                f"{found} a module of PURE decides and never acts, without task, clock, socket, "
                "disk or dice. Hand over the value, or move what acts to its caller."
            )
        if name == "dataclasses.dataclass":
            yield (
                f"{found} each such class takes half a millisecond of every start. Import "
                "`dataclass` from odradek.late, which compiles its methods when they are used."
            )
        if top == "construct" and module != CONSTRUCT:
            yield f"{found} only {CONSTRUCT} knows construct. Declare a kind of field there."
        if top in ADDRESSES and not module.startswith(ADDRESSES[top]):
            places = " and ".join(ADDRESSES[top])
            yield f"{found} only {places} may. Call what stands there, or ask for it from outside."


def tasks(module: str, tree: ast.Module) -> list[str]:
    return [
        f"{module} may wait in {node.name}: a module of PURE decides and never waits. Return what "
        "is to be done, and let the caller wait."
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFunctionDef) and is_pure(module)
    ]


def test_a_pure_module_never_waits() -> None:
    require_none(found for module, tree in modules() for found in tasks(module, tree))


def test_a_pure_module_that_waits_is_seen() -> None:
    assert tasks("broker/txn/state.py", ast.parse("async def f(): ...")) != []


def test_every_pure_name_is_a_module_or_a_folder() -> None:
    there = {module.removesuffix(".py") for module, _ in modules()}
    there |= {module.rpartition("/")[0] for module, _ in modules()}
    require_none(
        f"{path} is not there: PURE names modules and folders. Name where it is now."
        for path in sorted(PURE_PATHS - there)
    )


def test_imports_point_one_way() -> None:
    require_none(wrong for module, tree in modules() for wrong in wrong_imports(module, tree))


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
        ("broker/api/produce.py", "from dataclasses import dataclass"),
        ("broker/storage/log.py", "from odradek.broker.partitions.partition import Partition"),
        ("broker/partitions/watch.py", "from odradek.broker.txn import state"),
        ("broker/environment/env.py", "from odradek.broker.storage import disk"),
        ("broker/txn/coordinator.py", "import socket"),
        ("broker/process.py", "import gc"),
        ("broker/cluster/store_etcd.py", "import httpx2"),
        ("client/cli/spark.py", "from pyspark.sql import SparkSession"),
        ("client/blocking/producer.py", "import psycopg"),
    ],
)
def test_a_wrong_import_is_seen(module: str, line: str) -> None:
    assert list(wrong_imports(module, ast.parse(line))) != []


def banned_names(module: str, tree: ast.Module) -> list[str]:
    if module.startswith(OUTSIDE_ALLOWED) or module == CONNECTS:
        return []
    return [
        f"{module} uses {name}: clock, disk, threads and chance come through `Env`, so that a run "
        "follows from its seed. Ask the `Env` that the caller has."
        for name in names_from_outside(tree)
    ]


def test_clock_disk_threads_and_chance_come_through_the_environment() -> None:
    require_none(name for module, tree in modules() for name in banned_names(module, tree))


def test_the_client_connects_over_tcp_in_a_single_place() -> None:
    assert names_from_outside(dict(modules())[CONNECTS]) == ["trio.open_tcp_stream"]


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


@pytest.mark.parametrize("package", LAYERS)
def test_no_module_imports_itself_by_way_of_others(package: str) -> None:
    cycle = import_cycle(import_graph(modules(), package))
    require_none(
        [
            f"{' -> '.join(cycle)}: modules import each other in no circle. Move what both need to "
            "a module of its own, or hand it over as an argument."
        ]
        if cycle
        else []
    )


def test_an_import_cycle_is_seen() -> None:
    assert import_cycle({"a": ["b"], "b": ["c", "d"], "d": ["b"]}) == ["b", "d"]


NURSERIES = {"client/cluster/nursery.py", "client/blocking/loop.py"}
"""The modules of the client that open nurseries of trio. Ctrl-C never strikes the second's."""


def test_nurseries_of_the_client_are_those_that_ctrl_c_does_not_strike() -> None:
    opened = {module for module, text in texts_below("client") if "open_nursery(" in text}
    require_none(
        f"{module} opens a nursery: only those of NURSERIES are kept from Ctrl-C. Start the task "
        "in the nursery of the client."
        for module in sorted(opened - NURSERIES)
    )
    assert opened == NURSERIES


def test_no_tracked_file_names_a_path_of_one_machine() -> None:
    scripts = [path for path in (ROOT / "scripts").iterdir() if path.is_file()]
    for path in [*scripts, ROOT / "README.md", ROOT / "pyproject.toml"]:
        assert "/root/" not in path.read_text(), (
            f"{path.name}: no tracked file names a path of one machine. Find it from the file's own"
        )


def test_tests_draw_the_same_examples_in_every_run() -> None:
    require_none(
        f"{module} imports {name}: the profiles of hypothesis are set in tests/drawing.py. Import "
        "`given`, `settings` and `st` from there."
        for module, text in texts_below("tests")
        if module != "tests/drawing.py" and "hypothesis" in text
        for name in imports(ast.parse(text))
        if name.partition(".")[0] == "hypothesis"
    )
