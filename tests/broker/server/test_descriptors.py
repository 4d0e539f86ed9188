"""A process without a file descriptor left: clients that are there go on, others are told."""

import errno
import resource
from pathlib import Path

import pytest

from odradek.broker.storage.files import OpenFiles
from odradek.broker.testing import RunningBroker, run_broker
from odradek.protocol.apis.metadata import METADATA, MetadataRequest
from tests.broker.asks import batch, create_topic, produce
from tests.broker.raw import RawClient
from tests.fakes.disk import FakeDisk

TURNED_AWAY = 200
NO_TOPICS = MetadataRequest(topics=())


def take_descriptors_away(broker: RunningBroker) -> tuple[int, int]:
    """Let the process open no more than it has open; what it could before."""
    process_id = broker.process.pid
    highest = max(int(path.name) for path in Path(f"/proc/{process_id}/fd").iterdir())
    before = resource.prlimit(process_id, resource.RLIMIT_NOFILE)
    resource.prlimit(process_id, resource.RLIMIT_NOFILE, (highest + 1, before[1]))
    return before


def is_served(client: RawClient) -> bool:
    client.request(METADATA, 12, NO_TOPICS)
    return client.frame() != b""


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux has prlimit")
def test_without_descriptors_clients_go_on_and_new_ones_are_closed_at_once(tmp_path: Path) -> None:
    """Seen: new clients hung until their own time-out, and the log had ten lines a second."""
    with run_broker(data_dir=tmp_path) as broker, RawClient(broker) as client:
        create_topic(client, "t")
        produce(client, "t", batch(b"1"))
        before = take_descriptors_away(broker)
        fillers = [RawClient(broker)]
        while is_served(fillers[-1]):
            fillers.append(RawClient(broker))
        turned_away = 0
        while turned_away < TURNED_AWAY:
            late = RawClient(broker)
            if is_served(late):  # it has the descriptor of a file that the broker had open shortly
                fillers.append(late)
                continue
            late.socket.close()
            turned_away += 1
        assert len(fillers) < 20
        assert produce(client, "t", batch(b"2")).error_code == 0
        assert broker.log.count("no file descriptor is left") <= 25
        for filler in fillers:
            filler.socket.close()
        resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, before)
        with RawClient(broker) as again:
            assert is_served(again)
        assert "Traceback" not in broker.log


def test_files_that_are_kept_open_make_way_for_one_that_is_needed() -> None:
    """Otherwise the log that could not open its file would be taken offline."""
    disk = FakeDisk()
    disk.mkdir("d")
    files = OpenFiles(disk)
    for number in range(3):
        files.get(f"d/{number}.log")
    for _ in range(2):
        disk.fail("open", errno.EMFILE)
    files.get("d/needed.log").append(b"1")
    assert list(files) == ["d/2.log", "d/needed.log"]
    for _ in range(3):
        disk.fail("open", errno.EMFILE)
    with pytest.raises(OSError, match="Too many open files"):
        files.get("d/never.log")
