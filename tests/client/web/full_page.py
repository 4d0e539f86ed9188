"""A page with 1,000 open transactions and 10,000 partitions, without a broker."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from odradek.client.config import system_wall_ms
from odradek.client.web.board import Board
from odradek.client.web.command import page_files
from odradek.client.web.guard import Visitors
from odradek.client.web.page_server import PageServer

OPEN = 1_000


class FullPage:
    def __init__(self, port: int) -> None:
        self.link = f"http://127.0.0.1:{port}/"


def full_board(now_ms: int) -> Board:
    """Return the rows of a cluster that has much to show."""
    board = Board()
    board.put("about", "", {"bootstrap": "broker-1:9092"})
    for section in ("transactions", "pins", "cluster", "groups", "access"):
        board.put("status", section, {"is_well": True, "sentence": None})
    board.put("count", "transactions", {"all": OPEN, "open": OPEN})
    for number in range(OPEN):
        began_ms = now_ms - 10_000 - 100 * number
        name = f"task-{number:04}"
        lane = {
            **{"name": name, "group": "", "state": "Ongoing", "pending_state": None},
            **{"is_open": True, "producer_id": number, "producer_epoch": 3, "coordinator": 1},
            **{"client": f"app-{number} at 10.0.0.7", "timeout_ms": 600_000},
            **{"started_ms": began_ms, "deadline_ms": began_ms + 600_000, "partition_count": 1},
            **{"fence_cause": None, "fence_ms": None},
        }
        board.put("lane", name, lane)
        span = {
            **{"id": name, "began_ms": began_ms, "decided_ms": None, "ended_ms": None},
            **{"state": "Ongoing", "how": None, "count": 1, "owed": 0, "grown": []},
            **{"partitions": [f"t-{number}"], "partition_count": 1},
        }
        board.put("span", str(number), span)
        pin = {
            **{"topic": "t", "partition": number, "log_start_offset": 0},
            **{"last_stable_offset": 10, "high_watermark": 20 + number, "others": [12]},
            **{"other_count": 1, "id": name, "name": name, "producer_id": number},
            **{"producer_epoch": 3, "client": "app at 10.0.0.7", "state": "Ongoing"},
            **{"since_ms": began_ms, "deadline_ms": began_ms + 600_000, "is_hanging": False},
            "command": f"odradek txn abort -- {name}",
        }
        board.put("pin", f"t-{number}", pin)
    for number, how in enumerate(("committed", "aborted", "timed out", "fenced")):
        _add_ended(board, number, how, now_ms)
    _add_cluster(board, now_ms)
    return board


def _add_ended(board: Board, number: int, how: str, now_ms: int) -> None:
    ended_ms = now_ms - 20_000 * number - 5_000
    span = {
        **{"id": "task-0000", "began_ms": ended_ms - 8_000, "decided_ms": ended_ms - 500},
        **{"ended_ms": ended_ms, "state": "", "how": how, "count": 1, "owed": 0, "grown": []},
        **{"partitions": [], "partition_count": 0},
    }
    board.put("span", f"ended {number}", span)
    event = {"id": "task-0000", "at_ms": ended_ms, "kind": how, "text": f"was {how}"}
    board.put("event", str(number), event)


def _add_cluster(board: Board, now_ms: int) -> None:
    counts = {"topic_count": 100, "partition_count": 10_000, "leaderless": 0, "lagging": 3}
    board.put("cluster", "", {"id": "x", "controller": 1, **counts})
    broker = {"address": "broker-1:9092", "rack": "a", "is_away": False, "leads": 10_000}
    board.put("broker", "1", broker)
    for number in range(3):
        row = {
            **{"topic": "t", "partition": number, "leader": 1, "leader_epoch": 4},
            **{"replicas": [1, 2, 3], "in_sync": [1, 2], "adding": [3], "removing": []},
        }
        board.put("replicas", f"t-{number}", row)
    group = {
        **{"name": "billing", "state": "Stable", "type": "consumer", "assignor": "uniform"},
        **{"coordinator": 1, "epoch": 3, "member_count": 1, "members": [["app", 1]]},
        **{"behind_ms": 4_000, "partition_count": 1, "partitions": [["t", 0, 5, 10, 20, 15]]},
    }
    board.put("group", "billing", group)
    board.put("groups", "", {"count": 1, "followed": 1})
    samples = [[now_ms - 5_000 * number, 15 + number, 10] for number in range(50)]
    board.put("lag", f"{now_ms} billing", samples)
    board.put("group_event", "1", {"name": "billing", "at_ms": now_ms, "text": "app joined"})
    entry = {
        **{"resource": "topic", "name": "t", "is_prefix": True, "principal": "User:alice"},
        **{"host": "somewhere", "operation": "read", "permission": "allow"},
        "never_counts": "the host is no address",
    }
    board.put("acl", "1", entry)
    board.put("user", "alice", {"name": "alice", "mechanisms": {"SCRAM-SHA-512": 4096}})
    board.put("refused", "quota", {"is_off": False, "text": "Cluster authorization failed."})


@contextmanager
def full_page() -> Iterator[FullPage]:
    """Serve it in a thread while the block runs."""
    ready: list[tuple[int, trio.lowlevel.TrioToken, trio.CancelScope]] = []
    is_ready = threading.Event()

    async def serve() -> None:
        board = full_board(system_wall_ms())
        server = PageServer(board, page_files(), {}, Visitors(("127.0.0.1",)), "full")
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        with trio.CancelScope() as scope:
            port = listener.socket.getsockname()[1]
            ready.append((port, trio.lowlevel.current_trio_token(), scope))
            is_ready.set()
            await trio.serve_listeners(server.serve_one, [listener])

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    try:
        assert is_ready.wait(60)
        port, token, scope = ready[0]
        yield FullPage(port)
        token.run_sync_soon(scope.cancel)
    finally:
        thread.join(60)
