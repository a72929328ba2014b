"""The steps of the jobs against plain Python, also beyond the memory of a reducer; test data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tasks.map_reduce_reference import (
    count_reference,
    counted,
    executed,
    grep_reference,
    lines_of,
    plan_of,
    some_text,
    sorted_reference,
)
from weft.errors import InvalidArgument
from weft.tasks import mapreduce
from weft.tasks.mapreduce.line_flow import MEMORY_BYTES, GrepFlow, SortFlow, matcher
from weft.tasks.mapreduce.pair_flow import PairFlow, WordCountFlow, as_text


@pytest.mark.parametrize("memory_bytes", [MEMORY_BYTES, 500])
@pytest.mark.parametrize("reducers", [1, 5])
def test_sort(tmp_path: Path, reducers: int, memory_bytes: int) -> None:
    lines = some_text(tmp_path / "in")
    flow = SortFlow(memory_bytes)
    plan = plan_of(tmp_path / "in", tmp_path, flow, partition_bytes=3000, reducers=reducers)
    assert b"".join(executed(flow, plan)) == sorted_reference(lines)
    assert [path.name for path in tmp_path.iterdir()] == ["in"], "the runs are removed"


def test_sort_of_equal_lines_and_of_bytes_below_a_newline(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "x").write_bytes(b"a\x01\na\n\na\x00b\na\n" * 300)
    flow = SortFlow(600)
    plan = plan_of(folder, tmp_path, flow, partition_bytes=1024, reducers=3)
    assert b"".join(executed(flow, plan)) == sorted_reference(lines_of(folder))


@pytest.mark.parametrize("memory_bytes", [MEMORY_BYTES, 500])
@pytest.mark.parametrize("reducers", [1, 4])
def test_word_count(tmp_path: Path, reducers: int, memory_bytes: int) -> None:
    lines = some_text(tmp_path / "in")
    flow = WordCountFlow(memory_bytes)
    plan = plan_of(tmp_path / "in", tmp_path, flow, partition_bytes=3000, reducers=reducers)
    outputs = list(executed(flow, plan))
    assert counted(b"".join(outputs)) == count_reference(lines)
    for output in outputs:
        words = [line.rpartition(b"\t")[0] for line in output.splitlines()]
        assert words == sorted(words)


@pytest.mark.parametrize("pattern", ["a1", "^[0-9]", "f.*e$", "é", "(ab|cd)", r"\s\s", "x{3,}"])
def test_grep(tmp_path: Path, pattern: str) -> None:
    lines = some_text(tmp_path / "in")
    flow = GrepFlow()
    plan = plan_of(
        tmp_path / "in", tmp_path, flow, partition_bytes=3000, reducers=3, pattern=pattern
    )
    assert b"".join(executed(flow, plan)) == grep_reference(lines, pattern)


@pytest.mark.parametrize("pattern", ["", "(", "a\nb", "[z-a]"])
def test_a_bad_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidArgument, match="pattern"):
        matcher(pattern)


def pairs(line: bytes) -> Iterator[tuple[Any, Any]]:
    for word in line.decode("latin-1").split():
        yield word, len(line)


def longest(key: str, values: list[int]) -> Any:
    return max(values) if key != "\xff\xfe" else None


def ordered(key: str, values: list[int]) -> list[int]:
    return values


@pytest.mark.parametrize("memory_bytes", [MEMORY_BYTES, 2000])
@pytest.mark.parametrize("combine", [longest, None])
def test_functions_of_a_user(tmp_path: Path, memory_bytes: int, combine: Any) -> None:
    lines = some_text(tmp_path / "in")
    wanted: dict[str, int] = {}
    for line in lines:
        for word in line.decode("latin-1").split():
            wanted[word] = max(wanted.get(word, 0), len(line))
    combine = (lambda key, values: max(values)) if combine else None
    flow = PairFlow(pairs, longest, combine, memory_bytes)
    plan = plan_of(tmp_path / "in", tmp_path, flow, partition_bytes=3000, reducers=3)
    rows = b"".join(executed(flow, plan)).decode().splitlines()
    del wanted["\xff\xfe"]  # its reduce function has returned None
    assert sorted(rows) == sorted(f"{word}\t{most}" for word, most in wanted.items())


@pytest.mark.parametrize("memory_bytes", [MEMORY_BYTES, 2000])
def test_values_come_in_the_order_of_the_input(tmp_path: Path, memory_bytes: int) -> None:
    lines = some_text(tmp_path / "in")
    flow = PairFlow(pairs, ordered, None, memory_bytes)
    plan = plan_of(tmp_path / "in", tmp_path, flow, partition_bytes=3000, reducers=1)
    (output,) = executed(flow, plan)
    rows = dict(row.split("\t") for row in output.decode().splitlines())
    for word, values in rows.items():
        assert json.loads(values) == [
            len(line) for line in lines for w in line.decode("latin-1").split() if w == word
        ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\xff", b"\xff"),
        ("é", "é".encode()),
        (7, b"7"),
        (1.5, b"1.5"),
        ({"a": [1]}, b'{"a": [1]}'),
    ],
)
def test_values_in_the_output(value: Any, text: bytes) -> None:
    assert as_text(value) == text


@pytest.mark.parametrize("key", [b"a\nb", "a\nb"])
def test_a_newline_in_the_output_is_refused(key: Any) -> None:
    with pytest.raises(ValueError, match="newline"):
        as_text(key)


# --- test data ---


@pytest.mark.parametrize("kind", ["records", "text"])
@pytest.mark.parametrize("size", [0, 1, 100, 12_345, 300_000])
def test_generated_data_has_exactly_the_size(tmp_path: Path, kind: str, size: int) -> None:
    check = mapreduce.generate(kind, tmp_path / "a", size=size, seed=3, file_bytes="64K")
    lines = lines_of(tmp_path / "a")
    assert sum(map(len, lines)) + len(lines) == check.bytes == size
    assert len(lines) == check.lines
    again = mapreduce.generate(kind, tmp_path / "b", size=size, seed=3)
    assert again == check
    other = mapreduce.generate(kind, tmp_path / "c", size=size, seed=4)
    assert (other.checksum != check.checksum) is (size > 1)
    found = mapreduce.validate(tmp_path / "a", against=tmp_path / "b")
    assert found.complete
    assert (found.lines, found.bytes, found.checksum) == (check.lines, size, check.checksum)


@pytest.mark.parametrize(
    ("kind", "checksum"), [("records", 0xE0CF7CE5B8F71B03), ("text", 0xDEB1F1B5662D6721)]
)
def test_generated_data_is_the_same_with_each_python(
    tmp_path: Path, kind: str, checksum: int
) -> None:
    assert mapreduce.generate(kind, tmp_path / "a", size="100K", seed=1).checksum == checksum


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"kind": "noise"}, "kind must be one of text, records"),
        ({"size": "-1"}, "size must be a size"),
        ({"size": "2T", "file_bytes": 1}, "file_bytes"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_arguments_of_the_generator(
    tmp_path: Path, arguments: dict[str, Any], says: str
) -> None:
    given = {"kind": "text", "size": 100, **arguments}
    with pytest.raises(InvalidArgument, match=says):
        mapreduce.generate(given.pop("kind"), tmp_path / "x", **given)
    assert list(tmp_path.iterdir()) == []


def test_the_generator_refuses_a_folder_with_files(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(InvalidArgument, match="exists: choose another folder"):
        mapreduce.generate("text", tmp_path, size=10)


def test_disorder_and_missing_lines_are_found(tmp_path: Path) -> None:
    mapreduce.generate("records", tmp_path / "in", size="100K")
    lines = sorted(lines_of(tmp_path / "in"))
    out = tmp_path / "out"
    out.mkdir()

    def check(first: list[bytes], second: list[bytes]) -> mapreduce.data_validation.Validation:
        for name, some in (("part-00000", first), ("part-00001", second)):
            (out / name).write_bytes(b"".join(line + b"\n" for line in some))
        return mapreduce.validate(out, against=tmp_path / "in")

    assert (check(lines[:500], lines[500:]).sorted, check(lines[:500], lines[500:]).complete) == (
        True, True,
    )  # fmt: skip
    found = check(lines[500:], lines[:500])
    assert (found.sorted, found.complete) == (False, True)
    assert found.disorder == f"{out}/part-00001, line 1"
    swapped = [*lines[:10], lines[11], lines[10], *lines[12:]]
    assert check(swapped, []).disorder == f"{out}/part-00000, line 12"
    assert check(lines[:500], lines[501:]).complete is False
    changed = [lines[0][:-1] + b"~", *lines[1:]]
    assert check(changed, []).complete is False
    (tmp_path / "in" / "_generated.json").write_text("{}")
    with pytest.raises(InvalidArgument, match="no description of generated data"):
        check(lines, [])
    (tmp_path / "in" / "_generated.json").unlink()
    assert check(lines, []).complete, "data without a description is read"
    assert mapreduce.validate(out).complete is None
