"""The chain of batch headers in a log: what each header must say, given the one before it.

Base offset, length and leader epoch stand in front of what a batch's CRC covers, so no reader can
check them alone. Between them they are redundant: a batch begins at the offset at which the one
before it ended (later only where the log was compacted), the batches fill the file without a gap
of bytes, and the epoch is the one that the log had at that offset. A flipped bit breaks the chain.
"""

import struct
from dataclasses import dataclass
from typing import Final

from odradek.broker.env import Buffer
from odradek.broker.storage.leader_epochs import OFFSET_MAX, UNKNOWN_EPOCH, LeaderEpochs
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
    """A header does not continue the chain; `at` is its place in the bytes that were followed."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainRules:
    """The rules that the headers of one log must follow."""

    epochs: LeaderEpochs
    gaps_before: int = 0
    """Offsets below it may be missing, since compaction took their records."""


class Chain:
    """Follows headers from the batch that begins at `next_offset` on."""

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
        """Check batches from `at` on and return where the last of them ends.

        Stop behind `batches_max` batches, at a batch that reaches to `to_offset`, and at one whose
        end is not in `data` (with `headers_only`: whose header is not). Raises BrokenChain.
        """
        # One of these runs for every batch that is fetched: names are local, and what is not wanted
        # is a bound that nothing reaches.
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
            # the batch with the log's start may begin below it, where epochs are not known any more
            if last_offset >= epoch_end:
                known_epoch, epoch_end = self._rules.epochs.span(last_offset)
            if epoch != known_epoch and known_epoch != UNKNOWN_EPOCH:
                raise BrokenChain(at, f"a batch of leader epoch {epoch} stands in {known_epoch}")
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
