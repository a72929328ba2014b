"""What a job does with its lines, in two steps that both engines run: `split` and `merge`.

`split` turns the lines of one map task into a segment for each reducer. `merge` turns the segments
of one reducer, in the order of the map tasks, into output. Both are deterministic. A segment is
bytes of the flow's own format; an empty one is not stored.
"""

from __future__ import annotations

import heapq
import os
import re
import secrets
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Final, Protocol

from weft.errors import InvalidArgument

from .job_plan import JobPlan

#: Segments that a reducer holds in memory; beyond, sorted runs go to the spill folder.
MEMORY_BYTES: Final = 128 << 20
_OUTPUT_LINES: Final = 10_000


class LineFlow(Protocol):
    """The two steps of a job. Instances have no state: Spark copies them to its executors."""

    #: The reducers get ranges of the lines, from a sample of the input.
    ranges: bool

    def split(self, data: bytes, number: int, plan: JobPlan) -> list[bytes]:
        """The segments of a map task; `data` is lines, each with its newline."""
        ...

    def merge(self, segments: Iterable[bytes], plan: JobPlan) -> Iterator[bytes]:
        """The output of a reducer."""
        ...


class SortFlow:
    """Lines in the order of their bytes. Each reducer has a range of lines."""

    ranges = True

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._memory_bytes = memory_bytes

    def split(self, data: bytes, number: int, plan: JobPlan) -> list[bytes]:
        lines = sorted_lines([data])
        cuts = [0, *(bisect_left(lines, bound) for bound in plan.bounds), len(lines)]
        cuts += [len(lines)] * (plan.reducers + 1 - len(cuts))
        return [_joined(lines[start:end]) for start, end in pairwise(cuts)]

    def merge(self, segments: Iterable[bytes], plan: JobPlan) -> Iterator[bytes]:
        held: list[bytes] = []
        size = 0
        with RunFolder(plan.spill) as runs:
            for segment in segments:
                held.append(segment)
                size += len(segment)
                if size >= self._memory_bytes:
                    runs.add([_joined(sorted_lines(held))])
                    held, size = [], 0
            if not runs.paths:
                if size:
                    yield _joined(sorted_lines(held))
                return
            runs.add([_joined(sorted_lines(held))])
            del held
            merged = heapq.merge(*map(_lines_of, runs.paths))
            yield from (_joined(some) for some in chunks(merged, _OUTPUT_LINES))


class GrepFlow:
    """The lines that match a pattern, in the order of the input. No line is sorted."""

    ranges = False

    def split(self, data: bytes, number: int, plan: JobPlan) -> list[bytes]:
        segments = [b""] * plan.reducers
        found = matcher(plan.params["pattern"])(data)
        segments[number * plan.reducers // len(plan.splits)] = found
        return segments

    def merge(self, segments: Iterable[bytes], plan: JobPlan) -> Iterator[bytes]:
        yield from segments


def matcher(pattern: str) -> Callable[[bytes], bytes]:
    """A function from lines to the lines that match. Raises InvalidArgument for a bad pattern."""
    if "\n" in pattern:
        raise InvalidArgument("pattern must not contain a newline: a pattern matches within a line")
    raw = pattern.encode("utf-8", "surrogateescape")
    if not raw:
        raise InvalidArgument("pattern must not be empty")
    if re.escape(raw) == raw:
        return lambda data: _lines_with(data, raw)
    try:
        search = re.compile(raw).search
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidArgument(
            f"pattern {pattern[:100]!r} is no regular expression: {error}"
        ) from None

    def matching(data: bytes) -> bytes:
        return _joined([line for line in data.split(b"\n")[:-1] if search(line)])

    return matching


def _lines_with(data: bytes, text: bytes) -> bytes:
    """The lines that contain a text, without a look at each line."""
    found: list[bytes] = []
    position = data.find(text)
    while position >= 0:
        start = data.rfind(b"\n", 0, position) + 1
        end = data.find(b"\n", position) + 1
        found.append(data[start:end])
        position = data.find(text, end)
    return b"".join(found)


class RunFolder:
    """Sorted runs of a reducer whose segments do not fit in memory."""

    def __init__(self, spill: str) -> None:
        self._base = os.path.join(spill, f"run-{secrets.token_hex(6)}")
        self.paths: list[str] = []

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *error: object) -> None:
        for path in self.paths:
            try:
                os.unlink(path)
            except OSError:
                pass

    def add(self, parts: Iterable[bytes]) -> None:
        path = f"{self._base}-{len(self.paths)}"
        self.paths.append(path)
        try:
            with open(path, "wb") as file:
                for part in parts:
                    file.write(part)
        except OSError as error:
            error.filename = path  # a failed write names no file
            raise


def sorted_lines(blocks: list[bytes]) -> list[bytes]:
    """The lines of blocks, sorted; timsort finds the runs that are sorted already."""
    lines = b"".join(blocks).split(b"\n")
    lines.pop()
    lines.sort()
    return lines


def chunks(items: Iterator[bytes], most: int) -> Iterator[list[bytes]]:
    some: list[bytes] = []
    for item in items:
        some.append(item)
        if len(some) == most:
            yield some
            some = []
    if some:
        yield some


def _joined(lines: list[bytes]) -> bytes:
    return b"\n".join(lines) + b"\n" if lines else b""


def _lines_of(path: str) -> Iterator[bytes]:
    with open(path, "rb", buffering=1 << 20) as file:
        for line in file:
            yield line[:-1]
