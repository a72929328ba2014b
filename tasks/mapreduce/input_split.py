"""The input of a job: files, their splits, and the lines that belong to a split.

A *split* is the input of one map task: pieces of consecutive files, up to the partition size. A
piece [start, end) of a file owns the lines whose first byte is in the piece. So each line belongs
to exactly one piece: a line across a border is read by the piece in which the line begins, and a
piece inside of one long line owns nothing. A line ends with a newline; the last line of a file may
lack one. Nothing is decoded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from weft.errors import InvalidArgument

#: A line is held in memory as a whole.
LINE_BYTES_MAX: Final = 256 << 20
#: Map tasks of one job: their state is in the memory of the driver.
SPLITS_MAX: Final = 1_000_000
_TAIL_BYTES: Final = 64 << 10
_NEWLINE: Final = b"\n"

#: File by its number in the plan, start, end.
Piece = tuple[int, int, int]


class InputFile(msgspec.Struct, array_like=True, frozen=True):
    """A file as the driver has found the file. A changed file fails the job."""

    path: str
    size: int
    mtime_ns: int


class InputChanged(Exception):
    """A file of the input is not as the plan has it."""


class LineTooLong(Exception):
    """A line does not fit in memory."""


def list_input(where: str) -> list[InputFile]:
    """The files of a folder, in the order of their paths, or one file.

    Folders inside are searched. Names that begin with "_" or "." are left out, so the output of one
    job can be the input of another. Raises InvalidArgument for a missing input.
    """
    if not os.path.exists(where):
        raise InvalidArgument(f"the input {where} does not exist: name a folder or a file")
    paths = [where] if not os.path.isdir(where) else sorted(_walk(where))
    files = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError as error:  # a link to nothing, say
            raise InvalidArgument(f"the input {path} cannot be read: {error.strerror}") from None
        if not os.path.isfile(path):
            raise InvalidArgument(f"the input {path} is not a regular file")
        files.append(InputFile(path, status.st_size, status.st_mtime_ns))
    return files


def _walk(folder: str) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise error

    for where, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if name[0] not in "_."]
        yield from (os.path.join(where, name) for name in names if name[0] not in "_.")


def check_unchanged(files: Sequence[InputFile]) -> None:
    """Raises InputChanged if a file has another size or time of modification."""
    for file in files:
        try:
            status = os.stat(file.path)
        except OSError as error:
            raise InputChanged(f"{file.path}: {error.strerror}") from None
        if (status.st_size, status.st_mtime_ns) != (file.size, file.mtime_ns):
            raise InputChanged(f"{file.path} has changed since the start of the run")


def splits_of(files: Sequence[InputFile], partition_bytes: int) -> list[list[Piece]]:
    """Splits of at most `partition_bytes`; small files share a split. Raises InvalidArgument."""
    total = sum(file.size for file in files)
    if total // partition_bytes > SPLITS_MAX:
        raise InvalidArgument(
            f"partition_bytes {partition_bytes} makes {total // partition_bytes:,} partitions of "
            f"{total:,} bytes, at most {SPLITS_MAX:,} are allowed: choose a larger one"
        )
    splits: list[list[Piece]] = []
    room = 0
    for number, file in enumerate(files):
        start = 0
        while start < file.size:
            if room == 0 or (start == 0 and file.size > room):
                # A file that does not fit begins a split, so that large files are cut evenly.
                splits.append([])
                room = partition_bytes
            end = min(file.size, start + room)
            splits[-1].append((number, start, end))
            room -= end - start
            start = end
    return splits


def read_lines(files: Sequence[InputFile], pieces: Sequence[Piece]) -> bytes:
    """The lines of a split, each with its newline. Raises InputChanged and LineTooLong."""
    blocks = [read_piece(files[number], start, end) for number, start, end in pieces]
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def read_piece(file: InputFile, start: int, end: int) -> bytes:
    """The lines that begin in [start, end) of the file."""
    try:
        handle = os.open(file.path, os.O_RDONLY)
    except OSError as error:
        raise InputChanged(f"{file.path}: {error.strerror}") from None
    try:
        begin = 0
        data = _read(handle, file, max(0, start - 1), end)
        if start:
            # The byte before the piece tells if a line begins with the piece.
            begin = data.find(_NEWLINE) + 1
            if not begin:
                return b""
        if begin == len(data):
            return b""
        if data[-1:] == _NEWLINE:
            return data[begin:] if begin else data
        return data[begin:] + _tail(handle, file, end, len(data) - begin)
    finally:
        os.close(handle)


def _tail(handle: int, file: InputFile, position: int, length: int) -> bytes:
    """The rest of the last line, with a newline."""
    found: list[bytes] = []
    step = _TAIL_BYTES
    while position < file.size:
        block = _read(handle, file, position, min(file.size, position + step))
        end = block.find(_NEWLINE)
        if end >= 0:
            found.append(block[: end + 1])
            return b"".join(found)
        found.append(block)
        position += len(block)
        length += len(block)
        if length > LINE_BYTES_MAX:
            raise LineTooLong(f"{file.path} has a line of more than {LINE_BYTES_MAX:,} bytes")
        step *= 2
    found.append(_NEWLINE)
    return b"".join(found)


def _read(handle: int, file: InputFile, start: int, end: int) -> bytes:
    data = os.pread(handle, end - start, start)
    while len(data) < end - start:
        more = os.pread(handle, end - start - len(data), start + len(data))
        if not more:
            raise InputChanged(f"{file.path} is shorter than {file.size:,} bytes now")
        data += more
    return data
