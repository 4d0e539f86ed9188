"""The leader epochs of the records that a consumer has fetched of a partition (KIP-320)."""

from collections.abc import Iterable
from typing import Final

from odradek.protocol.batch import BatchHeader, read_header
from odradek.protocol.schema import Buffer

UNKNOWN: Final = -1

Epochs = Iterable[tuple[int, int]]
"""Offsets, and the leader epoch of the records from each of them on."""


class ReadEpochs:
    """The leader epochs of what was fetched, and the offset at which each begins."""

    __slots__ = ("_begins",)

    def __init__(self) -> None:
        self._begins: list[tuple[int, int]] = []

    def begin(self, offset: int, leader_epoch: int) -> None:
        """Forget all of them. The record before `offset` has this one, if it is known."""
        self._begins = [] if leader_epoch < 0 else [(offset - 1, leader_epoch)]

    def note(self, epochs: Epochs) -> None:
        """Note the epochs of records behind those that are known."""
        for offset, leader_epoch in epochs:
            if not self._begins or self._begins[-1][1] != leader_epoch:
                self._begins.append((offset, leader_epoch))

    def forget_before(self, offset: int) -> None:
        """Forget those that end before the record in front of `offset`."""
        while len(self._begins) > 1 and self._begins[1][0] < offset:
            del self._begins[0]

    def before(self, offset: int) -> int:
        """Return the leader epoch of the record before `offset`; -1 if it is not known."""
        for first, leader_epoch in reversed(self._begins):
            if first < offset:
                return leader_epoch
        return UNKNOWN


def epochs_of(records: Buffer, last: BatchHeader) -> Epochs:
    """Return the epochs in fetched batches, of which `last` is the last whole one.

    They never fall in a log, so two equal ones have the same between them. Between two that differ
    they are left unknown: there may be 17,000 batches in a fetch, and the next fetch is of one.
    """
    first = read_header(records)
    begin = (first.base_offset, first.partition_leader_epoch)
    if first.partition_leader_epoch == last.partition_leader_epoch:
        return (begin,)
    return (begin, (first.next_offset, UNKNOWN), (last.base_offset, last.partition_leader_epoch))
