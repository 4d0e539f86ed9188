"""Who opened a partition's transactions is remembered for as long as they are open, and no more."""

from odradek.broker.partitions.openers import LEFT_OVER_MAX, Openers
from odradek.broker.storage.producers import Producers
from odradek.broker.values.client_identity import ClientIdentity
from odradek.protocol.batch import BatchHeader, read_header
from odradek.protocol.record import Record, encode_batch

CLIENT = ClientIdentity(client_id="worker-7", host="127.0.0.1")


def header(producer_id: int, *, is_transactional: bool = True, sequence: int = 0) -> BatchHeader:
    return read_header(
        encode_batch(
            [Record(key=None, value=b"v", timestamp_ms=0)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
    )


class Partition:
    """Appends one record at a time, and notes who did it as a handler does."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.openers = Openers(self.producers)
        self.end_offset = 0

    def write(self, producer_id: int, transactional_id: str, **options: bool) -> None:
        self.producers.add_batch(header(producer_id, **options), self.end_offset, 0, 0)
        self.end_offset += 1
        if not self.openers.are_known(producer_id):
            self.openers.note(
                producer_id,
                transactional_id=transactional_id,
                client=CLIENT,
                now_ms=self.end_offset,
            )

    def end(self, producer_id: int) -> None:
        self.producers.add_marker(
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            offset=self.end_offset,
            timestamp_ms=0,
            now_ms=0,
        )
        self.end_offset += 1

    def opener(self, producer_id: int) -> tuple[str | None, int] | None:
        found = self.openers.of(self.producers.entries[producer_id])
        return None if found is None else (found.transactional_id, found.since_ms)


def test_the_first_batch_says_who_opened_a_transaction() -> None:
    partition = Partition()
    partition.write(1, "a")
    partition.write(1, "somebody else")
    assert partition.opener(1) == ("a", 1)
    partition.end(1)
    assert partition.opener(1) is None
    partition.write(1, "b")
    assert partition.opener(1) == ("b", 4)


def test_what_is_no_transaction_is_not_noted() -> None:
    partition = Partition()
    partition.write(1, "a", is_transactional=False)
    assert partition.opener(1) is None
    assert len(partition.openers) == 0


def test_a_transaction_that_was_open_before_the_start_has_no_opener() -> None:
    before = Partition()
    before.write(1, "a")
    entry = before.producers.entries[1]
    assert Openers(Producers([entry])).of(entry) is None


def test_what_is_remembered_is_bounded_by_what_is_open() -> None:
    partition = Partition()
    for producer_id in range(100):
        partition.write(producer_id, f"open-{producer_id}")
    for producer_id in range(1_000, 6_000):
        partition.write(producer_id, "short")
        partition.end(producer_id)
        assert len(partition.openers) <= 2 * 101 + LEFT_OVER_MAX
    for producer_id in range(100):
        assert partition.opener(producer_id) == (f"open-{producer_id}", producer_id + 1)
