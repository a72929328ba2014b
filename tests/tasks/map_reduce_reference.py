"""Map-reduce in plain Python, to compare with, and helpers of its tests."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from weft.tasks.mapreduce.input_split import list_input, splits_of
from weft.tasks.mapreduce.job_plan import JobPlan, range_bounds
from weft.tasks.mapreduce.line_flow import LineFlow


def lines_of(folder: Path) -> list[bytes]:
    """All lines of the input, in order, without newlines."""
    found: list[bytes] = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if not any(part[0] in "_." for part in path.relative_to(folder).parts):
            lines = path.read_bytes().split(b"\n")
            found += lines[:-1] if lines[-1] == b"" else lines
    return found


def parts_of(folder: Path) -> dict[str, bytes]:
    """The output files; asserts that the output is complete and that nothing else is there."""
    assert (folder / "_SUCCESS").exists()
    names = {path.name for path in folder.iterdir()} - {"_SUCCESS"}
    assert names == {f"part-{number:05d}" for number in range(len(names))}
    return {name: (folder / name).read_bytes() for name in sorted(names)}


def output_of(folder: Path) -> bytes:
    return b"".join(parts_of(folder).values())


def sorted_reference(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in sorted(lines))


def count_reference(lines: Sequence[bytes]) -> Counter[bytes]:
    return Counter(word for line in lines for word in line.split())


def counted(output: bytes) -> Counter[bytes]:
    rows = [line.rpartition(b"\t") for line in output.splitlines()]
    found = Counter({word: int(count) for word, _, count in rows})
    assert len(found) == len(rows), "a word is in two lines"
    return found


def grep_reference(lines: Sequence[bytes], pattern: str) -> bytes:
    search = re.compile(pattern.encode()).search
    return b"".join(line + b"\n" for line in lines if search(line))


def some_text(folder: Path, *, files: int = 3, lines: int = 400, seed: int = 1) -> list[bytes]:
    """Writes text with words that repeat, some of them no UTF-8; returns the lines."""
    source = random.Random(seed)
    words = [source.randbytes(3).hex().encode() for _ in range(60)] + [b"\xff\xfe", b"\xc3\xa9"]
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        rows = [b" ".join(source.choices(words, k=source.randint(0, 12))) for _ in range(lines)]
        end = b"" if number == 0 else b"\n"  # the first file lacks its last newline
        (folder / f"text-{number}").write_bytes(b"\n".join(rows) + end)
    return lines_of(folder)


def plan_of(
    source: Path, spill: Path, flow: LineFlow, *, partition_bytes: int, reducers: int, **params: str
) -> JobPlan:
    files = list_input(str(source))
    bounds = range_bounds(files, reducers) if flow.ranges else []
    splits = splits_of(files, partition_bytes)
    return JobPlan(
        "test", params, files, partition_bytes, splits, reducers, bounds, str(spill), str(spill)
    )


def executed(flow: LineFlow, plan: JobPlan) -> Iterator[bytes]:
    """The output of each reducer, by direct calls of the two steps."""
    from weft.tasks.mapreduce.stage import map_segments

    columns = [map_segments(plan, flow, number)[0] for number in range(len(plan.splits))]
    for reducer in range(plan.reducers):
        yield b"".join(flow.merge([column[reducer] for column in columns], plan))
