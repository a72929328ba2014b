"""Splits, lines, samples, spill files: the parts of map-reduce, without a node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tasks.map_reduce_reference import lines_of
from weft.errors import InvalidArgument
from weft.tasks.blocks.block_file import BlockDamaged, write_file
from weft.tasks.mapreduce import input_split
from weft.tasks.mapreduce.byte_size import parse_size
from weft.tasks.mapreduce.input_split import (
    InputChanged,
    InputFile,
    LineTooLong,
    check_unchanged,
    list_input,
    read_lines,
    splits_of,
)
from weft.tasks.mapreduce.job_plan import (
    PlanLost,
    load_outputs,
    range_bounds,
    read_checked,
    save_outputs,
)
from weft.tasks.mapreduce.spill_file import (
    read_segment,
    spill_path,
    write_spill,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [("65536", 65536), ("100K", 102_400), ("1M", 1 << 20), ("1.5m", 3 << 19), ("2GiB", 2 << 30),
     ("4.0 MiB", 4 << 20), (4096, 4096)],
)  # fmt: skip
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size("size", text, 0, 1 << 40) == size


@pytest.mark.parametrize(
    "value", ["", "0", "-5", "abc", "1X", "10T", "1 000", "1e6", 1.5, None, True]
)
def test_a_size_that_is_none_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidArgument, match="partition_bytes"):
        parse_size("partition_bytes", value, 1024, 1 << 30)


def written(folder: Path, contents: list[bytes]) -> list[InputFile]:
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(contents):
        (folder / f"{number:03d}").write_bytes(data)
    return list_input(str(folder))


_data = st.lists(
    st.lists(st.sampled_from([b"", b"a", b"bc", b"d" * 40, b"\r", b"\x00"]), max_size=12).flatmap(
        lambda lines: st.sampled_from([b"\n".join(lines), b"\n".join(lines) + b"\n"])
    ),
    max_size=4,
)


@given(contents=_data, size=st.integers(1, 60))
def test_each_line_belongs_to_one_split(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], size: int
) -> None:
    folder = tmp_path_factory.mktemp("in")
    files = written(folder, contents)
    splits = splits_of(files, size)
    assert all(1 <= sum(end - start for _, start, end in split) <= size for split in splits)
    found = b"".join(read_lines(files, split) for split in splits)
    assert found == b"".join(line + b"\n" for line in lines_of(folder))


def test_small_files_share_a_split_and_a_large_one_begins_a_split(tmp_path: Path) -> None:
    files = written(tmp_path, [b"a\n" * 10, b"b\n" * 10, b"", b"c\n" * 60, b"d\n"])
    assert splits_of(files, 50) == [
        [(0, 0, 20), (1, 0, 20)], [(3, 0, 50)], [(3, 50, 100)], [(3, 100, 120), (4, 0, 2)],
    ]  # fmt: skip


def test_too_many_splits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="partition_bytes 1024 makes"):
        splits_of([InputFile("x", 1 << 40, 0)], 1024)


def test_a_line_longer_than_its_partition_and_one_beyond_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_split, "LINE_BYTES_MAX", 500_000)
    files = written(tmp_path, [b"a\n" + b"x" * 300_000 + b"\nb"])
    assert [len(read_lines(files, split)) for split in splits_of(files, 100_000)] == [
        300_003, 0, 0, 2,
    ]  # fmt: skip
    files = written(tmp_path, [b"a\n" + b"x" * 600_000 + b"\nb"])
    with pytest.raises(LineTooLong, match="000 has a line of more than"):
        read_lines(files, splits_of(files, 100_000)[0])


def test_hidden_files_are_left_out_and_folders_are_searched(tmp_path: Path) -> None:
    for name in ("b", "a/y", "a/x", "_SUCCESS", ".hidden", "_weft/z", "a/.git/z"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"1\n")
    names = [os.path.relpath(file.path, tmp_path) for file in list_input(str(tmp_path))]
    assert names == ["a/x", "a/y", "b"]
    assert len(list_input(str(tmp_path / "_SUCCESS"))) == 1, "a file that is named is taken"


def test_an_input_that_is_missing_or_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="nowhere does not exist"):
        list_input(str(tmp_path / "nowhere"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidArgument, match="pipe is not a regular file"):
        list_input(str(tmp_path))
    os.unlink(tmp_path / "pipe")
    os.symlink(tmp_path / "nothing", tmp_path / "link")
    with pytest.raises(InvalidArgument, match="link cannot be read: No such file"):
        list_input(str(tmp_path))


def test_an_input_that_changes_is_noticed(tmp_path: Path) -> None:
    files = written(tmp_path, [b"a\n" * 100])
    check_unchanged(files)
    (tmp_path / "000").write_bytes(b"a\n" * 50)
    with pytest.raises(InputChanged, match="000 has changed"):
        check_unchanged(files)
    with pytest.raises(InputChanged, match="is shorter than 200 bytes"):
        read_lines(files, [(0, 0, 200)])
    (tmp_path / "000").unlink()
    with pytest.raises(InputChanged, match="No such file"):
        check_unchanged(files)
    with pytest.raises(InputChanged, match="No such file"):
        read_lines(files, [(0, 0, 200)])


def test_the_sample_of_a_sort_makes_even_ranges(tmp_path: Path) -> None:
    lines = [b"%06d" % ((number * 7919) % 100_000) for number in range(100_000)]
    files = written(tmp_path, [b"\n".join(lines[:30_000]), b"\n".join(lines[30_000:])])
    bounds = range_bounds(files, 4)
    assert bounds == sorted(bounds)
    assert bounds == range_bounds(files, 4), "the same at each run"
    for bound, share in zip(bounds, (0.25, 0.5, 0.75), strict=True):
        assert abs(int(bound) / 100_000 - share) < 0.1
    assert range_bounds(files, 1) == []
    assert range_bounds([], 3) == []


# --- spill files ---

SEGMENTS = [b"one\n", b"", b"three\n" * 1000]


def test_segments_of_a_spill_file(tmp_path: Path) -> None:
    checksum = write_spill(str(tmp_path), 7, SEGMENTS)
    assert write_spill(str(tmp_path), 7, SEGMENTS) == checksum, "another attempt: the same file"
    assert [path.name for path in tmp_path.iterdir()] == [f"map-000007-{checksum:016x}"]
    assert [read_segment(str(tmp_path), 7, checksum, each) for each in range(3)] == SEGMENTS


@pytest.mark.parametrize("damage", ["missing", "truncated", "data", "index", "empty"])
def test_a_damaged_spill_file_is_noticed(tmp_path: Path, damage: str) -> None:
    checksum = write_spill(str(tmp_path), 0, SEGMENTS)
    path = Path(spill_path(str(tmp_path), 0, checksum))
    data = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(data[:-10])
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        data[100 if damage == "data" else -20] ^= 1
        path.write_bytes(data)
    with pytest.raises(BlockDamaged, match="map-000000"):
        read_segment(str(tmp_path), 0, checksum, 2)


def test_no_draft_is_left_behind_by_a_failed_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "writev", fail)
    with pytest.raises(OSError, match="No space left") as caught:
        write_file(str(tmp_path / "x"), [b"1"])
    assert caught.value.filename == str(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_a_run_is_checked(tmp_path: Path) -> None:
    path, checksum = save_outputs(str(tmp_path), [1, 2, (1 << 64) - 1])
    assert load_outputs(path, checksum) == [1, 2, (1 << 64) - 1]
    with pytest.raises(PlanLost, match="wrong checksum"):
        read_checked(path, checksum + 1)
    os.unlink(path)
    with pytest.raises(PlanLost, match="does not share the spill folder"):
        read_checked(path, checksum)
