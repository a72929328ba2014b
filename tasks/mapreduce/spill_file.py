"""Spill files: the output of one map task, a block file with a part for each reducer.

The map's result has the checksum of the block, which is also part of the file's name. So the result
that a worker commits pins every byte: a reader that finds a missing, truncated or changed file
reports the map task as lost, and the driver runs the map again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from weft.tasks.blocks.block_file import (
    block_frames,
    checksum_of,
    index_of,
    read_part,
    write_file,
)


def spill_name(number: int, checksum: int) -> str:
    return f"map-{number:06d}-{checksum:016x}"


def spill_path(folder: str, number: int, checksum: int) -> str:
    """The file of a map task in the spill folder."""
    return os.path.join(folder, spill_name(number, checksum))


def write_spill(folder: str, number: int, segments: Sequence[bytes]) -> int:
    """Writes the output of a map task; returns the checksum of the block."""
    index = index_of(segments)
    checksum = checksum_of(index)
    write_file(spill_path(folder, number, checksum), block_frames(segments, index))
    return checksum


def read_segment(folder: str, number: int, checksum: int, reducer: int) -> bytes:
    """One segment of a map task's file, verified. Raises BlockDamaged."""
    return read_part(spill_path(folder, number, checksum), reducer, checksum)
