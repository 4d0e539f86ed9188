"""The chain of batch headers in a log: each header is checked against the header before it.

A batch's CRC does not cover base offset, length and leader epoch, so a single header proves
nothing. A chain of headers does. A batch begins at the offset at which the batch before it ended
(or later, in a compacted log). The batches fill the file without gaps. The leader epoch is the one
that the log had at that offset. A flipped bit in one of the three fields breaks the chain.
"""

import struct
from typing import Final

from odradek.broker.environment.env import Buffer
from odradek.broker.storage.leader_epochs import OFFSET_MAX, UNKNOWN_EPOCH, LeaderEpochs
from odradek.late import dataclass
from odradek.protocol.batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    crc_is_good,
    read_header,
)

_FRONT: Final = struct.Struct(">qiib6xi")
"""Base offset, batch length, leader epoch, magic, last offset delta."""
LENGTH_MIN: Final = HEADER_BYTES - LENGTH_PREFIX_BYTES


class BrokenChain(Exception):
    """A header does not continue the chain. `at` is its position in the checked bytes."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainRules:
    """The rules for the headers of one log."""

    epochs: LeaderEpochs
    gaps_before: int = 0
    """Offsets below it may be missing, because compaction removed their records."""


class Chain:
    """A chain of headers that continues with the batch at `next_offset`."""

    def __init__(self, rules: ChainRules, next_offset: int) -> None:
        self._rules = rules
        self._epoch_end = -1
        self._epoch = UNKNOWN_EPOCH
        self.next_offset = next_offset

    def follow(
        self,
        data: Buffer,
        at: int = 0,
        *,
        batches_max: int | None = None,
        to_offset: int | None = None,
        headers_only: bool = False,
        with_crc: bool = False,
    ) -> int:
        """Check batches from `at` on, and return the end of the last one.

        Stop after `batches_max` batches, at a batch that reaches `to_offset`, and at a batch whose
        end is not in `data` (with `headers_only`: whose header is not). Raises BrokenChain.
        """
        # This loop runs for every fetched batch, so names are local, and an absent limit is a
        # number that is never reached instead of a None to test.
        unpack, gaps_before = _FRONT.unpack_from, self._rules.gaps_before
        next_offset, known_epoch, epoch_end = self.next_offset, self._epoch, self._epoch_end
        last_start = len(data) - HEADER_BYTES
        end_max = OFFSET_MAX if headers_only else len(data)
        stop_offset = OFFSET_MAX if to_offset is None else to_offset
        left = -1 if batches_max is None else batches_max
        while left and at <= last_start:
            base_offset, length, epoch, magic, delta = unpack(data, at)
            if magic != MAGIC or length < LENGTH_MIN or delta < 0:
                raise BrokenChain(at, "there is no batch")
            if base_offset != next_offset and not next_offset < base_offset < gaps_before:
                raise BrokenChain(at, f"a batch at offset {base_offset} follows {next_offset - 1}")
            last_offset = base_offset + delta
            # The last offset, not the base offset: the first batch may begin below the log start
            # offset, where the epochs have been removed.
            if last_offset >= epoch_end:
                known_epoch, epoch_end = self._rules.epochs.span(last_offset)
            if epoch != known_epoch and known_epoch != UNKNOWN_EPOCH:
                raise BrokenChain(
                    at, f"a batch has leader epoch {epoch}, the log has {known_epoch} there"
                )
            end = at + LENGTH_PREFIX_BYTES + length
            if last_offset >= stop_offset or end > end_max:
                break
            if with_crc and not crc_is_good(data[at:end], read_header(data, at)):
                raise BrokenChain(at, "its checksum is wrong")
            next_offset = last_offset + 1
            at = end
            left -= 1
        self.next_offset, self._epoch, self._epoch_end = next_offset, known_epoch, epoch_end
        return at
