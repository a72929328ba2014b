"""Jobs of keys and values: the map and reduce functions of a user, and word count.

A map yields pairs. A pair goes to the reducer of the checksum of its key. A reducer groups the
values by key, and its output has a line for each key, in the order of the keys: the key, a tab,
the value. A combiner shrinks the pairs of one map task, and the groups of a reducer.
"""

from __future__ import annotations

import heapq
import itertools
import json
import operator
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from .job_plan import JobPlan
from .line_flow import MEMORY_BYTES, RunFolder, chunks

Key = bytes | str | int
#: From a line, without its newline, to pairs.
MapFunction = Callable[[bytes], Iterable[tuple[Any, Any]]]
#: From a key and all its values to one value; None from a reduce function leaves the key out.
ReduceFunction = Callable[[Any, list[Any]], Any]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[list[Any], list[Any]]).decode
_FRAME: Final = struct.Struct("<I")
_RUN_PAIRS: Final = 1_000
_OUTPUT_LINES: Final = 10_000


class PairFlow:
    """The functions of a user. Spark copies the flow, and so the functions, to its executors."""

    ranges = False

    def __init__(
        self,
        map_line: MapFunction,
        reduce: ReduceFunction,
        combine: ReduceFunction | None,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        self._map_line = map_line
        self._reduce = reduce
        self._combine = combine
        self._memory_bytes = memory_bytes

    def split(self, data: bytes, number: int, plan: JobPlan) -> list[bytes]:
        groups = self.grouped(data)
        buckets = buckets_of(groups, plan.reducers)
        combine = self._combine
        if combine is not None:
            return [
                _packed([(key, combine(key, groups[key])) for key in bucket]) for bucket in buckets
            ]
        return [
            _packed([(key, value) for key in bucket for value in groups[key]]) for bucket in buckets
        ]

    def merge(self, segments: Iterable[bytes], plan: JobPlan) -> Iterator[bytes]:
        groups: dict[Any, list[Any]] = {}
        size = 0
        with RunFolder(plan.spill) as runs:
            for segment in segments:
                self.absorb(groups, segment)
                size += len(segment)
                if size >= self._memory_bytes:
                    runs.add(_framed(sorted_groups(groups)))
                    groups, size = {}, 0
            if not runs.paths:
                yield from self._output(sorted_groups(groups))
                return
            runs.add(_framed(sorted_groups(groups)))
            groups.clear()
            first = operator.itemgetter(0)
            merged = heapq.merge(*map(_groups_of, runs.paths), key=first)
            yield from self._output(
                (key, [value for _, values in some for value in values])
                for key, some in itertools.groupby(merged, first)
            )

    # --- the parts that word count has its own of ---

    def grouped(self, data: bytes) -> dict[Any, list[Any]]:
        """The values of a map task by key."""
        groups: dict[Any, list[Any]] = {}
        for line in data.split(b"\n")[:-1]:
            for key, value in self._map_line(line):
                check_key(key)
                groups.setdefault(key, []).append(value)
        return groups

    def absorb(self, groups: dict[Any, list[Any]], segment: bytes) -> None:
        """Adds the pairs of a segment."""
        if not segment:
            return
        keys, values = _decode(segment)
        for key, value in zip(keys, values, strict=True):
            groups.setdefault(key, []).append(value)

    def _output(self, groups: Iterable[tuple[Any, list[Any]]]) -> Iterator[bytes]:
        lines = (
            b"%b\t%b\n" % (as_text(key), as_text(value))
            for key, values in groups
            if (value := self._reduce(key, values)) is not None
        )
        yield from (b"".join(some) for some in chunks(lines, _OUTPUT_LINES))


class WordCountFlow(PairFlow):
    """Words between white space, and how often each occurs."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        super().__init__(_no_map, _sum, _sum, memory_bytes)

    def split(self, data: bytes, number: int, plan: JobPlan) -> list[bytes]:
        counts = Counter(data.split())
        if plan.reducers == 1:
            return [_encode((list(counts), list(counts.values()))) if counts else b""]
        buckets = buckets_of(counts, plan.reducers)
        return [_packed([(word, counts[word]) for word in bucket]) for bucket in buckets]

    def absorb(self, groups: dict[Any, list[Any]], segment: bytes) -> None:
        if not segment:
            return
        for word, count in zip(*_decode(segment), strict=True):
            held = groups.get(word)
            if held is None:
                groups[word] = [count]
            else:
                held[0] += count


def buckets_of(keys: Iterable[Any], reducers: int) -> list[list[Any]]:
    """The keys by reducer."""
    buckets: list[list[Any]] = [[] for _ in range(reducers)]
    if reducers == 1:
        buckets[0] = list(keys)
        return buckets
    crc32 = zlib.crc32
    for key in keys:
        raw = key if type(key) is bytes else _encode(key)
        buckets[crc32(raw) % reducers].append(key)
    return buckets


def check_key(key: object) -> None:
    if type(key) not in (bytes, str, int):
        raise TypeError(
            f"a key of a map function is bytes, str or int, not {type(key).__name__}: {key!r}"
        )


def sorted_groups(groups: dict[Any, list[Any]]) -> list[tuple[Any, list[Any]]]:
    """The groups by key. Raises TypeError for keys of several types."""
    if len(kinds := {type(key) for key in groups}) > 1:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise TypeError(f"the keys of a job have one type, not several: {names}")
    return sorted(groups.items(), key=operator.itemgetter(0))


def as_text(value: Any) -> bytes:
    """A key or a value in the output: text as it is, other values as JSON, in one line."""
    if type(value) is int:
        return b"%d" % value
    raw = value if type(value) is bytes else value.encode() if type(value) is str else None
    if raw is None:
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode()
    if b"\n" in raw:
        raise ValueError(f"a key or a value of the output has a newline: {raw[:100]!r}")
    return raw


def _packed(pairs: list[tuple[Any, Any]]) -> bytes:
    return _encode(([key for key, _ in pairs], [value for _, value in pairs])) if pairs else b""


def _framed(groups: list[tuple[Any, list[Any]]]) -> Iterator[bytes]:
    for start in range(0, len(groups), _RUN_PAIRS):
        some = groups[start : start + _RUN_PAIRS]
        raw = _encode(([key for key, _ in some], [values for _, values in some]))
        yield _FRAME.pack(len(raw)) + raw


def _groups_of(path: str) -> Iterator[tuple[Any, list[Any]]]:
    with open(path, "rb", buffering=1 << 20) as file:
        while head := file.read(_FRAME.size):
            yield from zip(*_decode(file.read(_FRAME.unpack(head)[0])), strict=True)


def _sum(key: Any, values: list[Any]) -> Any:
    return sum(values)


def _no_map(line: bytes) -> Iterable[tuple[Any, Any]]:
    raise NotImplementedError("word count maps a block of lines at once")
