"""The bytes of the metadata store: records, and how two copies of them are merged after a crash.

A record is

    u32 length of the body | u32 CRC-32C of the body | body: msgpack [revision, {key: value | nil}]

The first record of a compacted file is a snapshot: [revision, {...}, {key: [create, mod]}].

There are two files with the same bytes. A record is appended to the first and flushed, then
appended to the second and flushed, then it is acknowledged. So at any moment

- every acknowledged record is in both files, at the same place;
- only one file has bytes that are not on disk yet, and they are its last record;
- the first file may be one record ahead, and the second is never ahead of the first.

`merge` takes each record from a file that has it whole. Let `end` be the place where neither file
has one.

- If the second file has bytes behind `end`, its record there was written after the first file's was
  flushed. Both are damaged, and the record may have been acknowledged.
- If only the first file has bytes behind `end`, and the second ends there, the power was lost while
  the first was being written. That record was never acknowledged, and is cut off.
- If the second file is even shorter, it has lost records, and the one at `end` may be among them.

So a damaged record is distinguished from a torn one, and damage to one file alone loses nothing.

A compaction replaces both files, and nothing is appended until both are in place. A crash meanwhile
leaves files that begin differently and are both whole, with the same contents.
"""

import struct
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Final

import crc32c
import msgpack

from odradek.late import dataclass

_HEAD: Final = struct.Struct(">II")


class DamagedStore(Exception):
    """The files are damaged in a way that no crash explains. The message names the damage."""


@dataclass(slots=True)
class Merged:
    """The records of two copies. `notes` describes repaired damage, for the log."""

    bodies: list[bytes] = field(default_factory=list)
    size: int = 0
    """The size of all records with their heads."""
    notes: list[str] = field(default_factory=list)


def encode_record(content: Sequence[Any]) -> bytes:
    body: bytes = msgpack.packb(content, use_bin_type=True)
    return encode_body(body)


def encode_body(body: bytes) -> bytes:
    return _HEAD.pack(len(body), crc32c.crc32c(body)) + body


def decode_body(body: bytes) -> tuple[int, dict[str, bytes | None], dict[str, list[int]]]:
    """Return revision, values and, of a snapshot, their revisions. Raises `DamagedStore`."""
    try:
        revision, puts, *versions = msgpack.unpackb(body, raw=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise DamagedStore(f"a record has a good CRC and no contents: {error}") from error
    return revision, puts, versions[0] if versions else {}


def record_at(data: bytes, place: int) -> bytes | None:
    """Return the body of the record at `place`; None if there is no whole and correct one."""
    start = place + _HEAD.size
    if start > len(data):
        return None
    length, crc = _HEAD.unpack_from(data, place)
    body = data[start : start + length]
    if length == 0 or len(body) < length or crc32c.crc32c(body) != crc:
        return None
    return body


def merge(first: bytes, second: bytes, names: tuple[str, str]) -> Merged:
    """Return the records of two copies. Raises `DamagedStore` if a record may be lost."""
    begins = record_at(first, 0), record_at(second, 0)
    if None not in begins and begins[0] != begins[1]:
        return _of_two_beginnings(first, second, names)
    merged = readable(first, second, names)
    end = merged.size
    if len(second) > end:
        which = " and ".join(names) if len(first) > end else names[1]
        also = "" if len(first) > end else f", and {names[0]} has lost what it had there"
        raise DamagedStore(f"{which} cannot be read from byte {end} on{also}")
    if len(second) < end < len(first):
        lost = (
            f"{names[1]} ends before it, at byte {len(second)}"
            if second
            else (f"there is no {names[1]} to compare it with")
        )
        raise DamagedStore(f"{names[0]} cannot be read from byte {end} on, and {lost}")
    if len(first) > end:
        merged.notes.append(
            f"{names[0]}: the last {len(first) - end} bytes are no record; they were never "
            "acknowledged, and are cut off"
        )
    return merged


def readable(first: bytes, second: bytes, names: tuple[str, str]) -> Merged:
    """Return the records up to the first that neither copy has. Raises `DamagedStore`."""
    merged = Merged()
    last = 0
    while True:
        place = merged.size
        mine = record_at(first, place)
        other = mine if mine is not None and first == second else record_at(second, place)
        body = other if mine is None else mine
        if body is None:
            break
        if other is not None and other != body:
            raise DamagedStore(f"{names[0]} and {names[1]} contradict each other at byte {place}")
        if mine is None and place < len(first):
            merged.notes.append(_repaired(names[0], place, names[1]))
        if other is None and place < len(second):
            merged.notes.append(_repaired(names[1], place, names[0]))
        merged.bodies.append(body)
        merged.size += _HEAD.size + len(body)
        last = place
    if len(first) < merged.size:
        merged.notes.append(_repaired(names[0], len(first), names[1]))
    # Not damage: a crash before the last record, and a store of an earlier version without a copy.
    if len(second) < merged.size and len(second) not in (0, last):
        merged.notes.append(_repaired(names[1], len(second), names[0]))
    return merged


def _repaired(name: str, place: int, other: str) -> str:
    return (
        f"{name} is damaged or cut off at byte {place}; {other} has these records: "
        "nothing is lost, and the file is written anew"
    )


def _of_two_beginnings(first: bytes, second: bytes, names: tuple[str, str]) -> Merged:
    """Return the newer of two whole copies, of which a compaction has replaced only one."""
    both = [readable(data, data, names) for data in (first, second)]
    for merged, data, name in zip(both, (first, second), names, strict=True):
        if merged.size < len(data):
            raise DamagedStore(
                f"{' and '.join(names)} begin differently, and {name} cannot be read from byte "
                f"{merged.size} on"
            )
    return max(both, key=lambda merged: decode_body(merged.bodies[-1])[0])
