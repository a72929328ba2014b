"""Stored outcomes of tasks: one block for the tasks of a batch with a common end.

A block is written once, by the commit that also acknowledges its tasks, and never changed. A large
result is stored in chunks before the commit; the block has the keys. The chunks of a failed
commit have no reader and expire.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from weft import limits
from weft.errors import TaskCancelled, TaskFailed, TaskTimedOut, UpstreamFailed, WorkerLost
from weft.ids import MessageId

from .signature import encode

#: Larger results are stored in chunks of this size.
CHUNK_BYTES: Final = limits.MIB
#: The largest result.
RESULT_BYTES_MAX: Final = 64 * limits.MIB
#: Results of one block, together; a block is one value of the table.
BLOCK_BYTES_MAX: Final = 2 * limits.MIB
TRACE_CHARS_MAX: Final = 16_000
TEXT_CHARS_MAX: Final = 4_000
#: The default and the bounds of a result's time to live.
RESULT_TTL_S: Final = 3600.0
NIL: Final = msgspec.Raw(b"\xc0")


class TaskError(msgspec.Struct, array_like=True, frozen=True):
    """A failure: texts only. `kind` is the code of the error that a future raises."""

    kind: str
    error: str
    text: str
    trace: str = ""

    def exception(self, task_id: MessageId) -> TaskFailed:
        kind = _KINDS.get(self.kind, TaskFailed)
        what = f"{self.error}: {self.text}" if self.error and self.text else self.error or self.text
        return kind(
            f"task {task_id} failed: {what}", error=self.error, text=self.text, trace=self.trace
        )


_KINDS: Final = {
    each.code: each
    for each in (TaskFailed, WorkerLost, TaskTimedOut, TaskCancelled, UpstreamFailed)
}


class LargeResult(msgspec.Struct, array_like=True, frozen=True):
    """The keys of the chunks of one result."""

    keys: list[str]


class PickledResult(msgspec.Struct, array_like=True, frozen=True):
    """A result for apps that unpickle: its data, or the keys of its chunks."""

    data: bytes
    keys: list[str] = []


class ResultBlock(msgspec.Struct, array_like=True, frozen=True):
    """Outcomes by column. `values` has nil for a failure, a large and a pickled result. New fields
    are added at the end, with defaults."""

    indexes: list[int]
    values: list[msgspec.Raw]
    failures: dict[int, TaskError] = {}
    large: dict[int, LargeResult] = {}
    #: `failures` has an UNREADABLE for each, for readers of older versions.
    pickled: dict[int, PickledResult] | None = None


#: A block, written by hand: an array of four, and at its end two empty maps.
_BLOCK_HEAD: Final = b"\x94"
_NO_FAILURES: Final = b"\x80\x80"
_FIXARRAY_MAX: Final = 15
#: Of a pickled result, for readers of older versions: they would take nil for the result.
UNREADABLE: Final = TaskError(
    TaskFailed.code, "PickledResult",
    "the task has succeeded, with a pickled result: read it with a newer version of Weft",
)  # fmt: skip

#: The end of one task, at a reader.
Outcome = msgspec.Raw | TaskError | LargeResult | PickledResult

_decoder = msgspec.msgpack.Decoder(ResultBlock)


def blocks_of(rows: Sequence[tuple[int, Outcome]]) -> list[tuple[int, bytes]]:
    """Encodes outcomes, by index, as blocks; each block with its lowest index, its name."""
    if sum(size_of(each) for _, each in rows) <= BLOCK_BYTES_MAX:
        return [_block(rows)]
    parts: list[tuple[int, bytes]] = []
    part: list[tuple[int, Outcome]] = []
    size = 0
    for row in rows:
        length = size_of(row[1])
        if part and size + length > BLOCK_BYTES_MAX:
            parts.append(_block(part))
            part, size = [], 0
        part.append(row)
        size += length
    return [*parts, _block(part)]


def size_of(outcome: Outcome) -> int:
    """About the bytes of an outcome in its block."""
    if isinstance(outcome, msgspec.Raw):
        return len(outcome)
    if isinstance(outcome, TaskError):
        return sum(len(text.encode()) for text in (outcome.error, outcome.text, outcome.trace))
    keys = sum(map(len, outcome.keys))
    return keys + len(outcome.data) if isinstance(outcome, PickledResult) else keys


def _block(rows: Sequence[tuple[int, Outcome]]) -> tuple[int, bytes]:
    indexes = [index for index, _ in rows]
    values = [each if isinstance(each, msgspec.Raw) else NIL for _, each in rows]
    failures = {index: each for index, each in rows if isinstance(each, TaskError)}
    large = {index: each for index, each in rows if isinstance(each, LargeResult)}
    pickled = {index: each for index, each in rows if isinstance(each, PickledResult)}
    if not pickled:
        return min(indexes), encode((indexes, values, failures, large))
    failures |= dict.fromkeys(pickled, UNREADABLE)
    return min(indexes), encode(ResultBlock(indexes, values, failures, large, pickled))


def column_blocks(rows: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """As `blocks_of` for small results alone, which are encoded already, by ascending index."""
    size = sum(len(data) for _, data in rows)
    if size > BLOCK_BYTES_MAX:
        half = len(rows) // 2
        return column_blocks(rows[:half]) + column_blocks(rows[half:])
    indexes, values = zip(*rows, strict=True)
    parts = (_BLOCK_HEAD, encode(indexes), _array_head(len(values)), *values, _NO_FAILURES)
    return [(indexes[0], b"".join(parts))]


def _array_head(count: int) -> bytes:
    """The first bytes of a msgpack array."""
    if count <= _FIXARRAY_MAX:
        return bytes([0x90 | count])
    return b"\xdc" + count.to_bytes(2, "big")


def outcomes_in(data: bytes) -> dict[int, Outcome]:
    """The outcomes of a block by index."""
    block = _decoder.decode(data)
    found: dict[int, Outcome] = dict(zip(block.indexes, block.values, strict=True))
    found.update(block.failures)
    found.update(block.large)
    if block.pickled is not None:
        found.update(block.pickled)
    return found


def task_error(error: BaseException, kind: str = TaskFailed.code, trace: str = "") -> TaskError:
    """The stored form of an exception. Never raises: an exception of a task's code may have no
    text, or one without an encoding, such as a file name with surrogates."""
    kind = error.code if isinstance(error, TaskFailed) else kind
    try:
        text = str(error)
    except Exception as failure:
        text = f"the text of the exception is unknown: its __str__ raised {type(failure).__name__}"
    return TaskError(
        kind,
        _encodable(type(error).__name__),
        _encodable(text[:TEXT_CHARS_MAX]),
        _encodable(trace[-TRACE_CHARS_MAX:]),
    )


def _encodable(text: str) -> str:
    """The text; characters without an encoding in UTF-8 are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()
