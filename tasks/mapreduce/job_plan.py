"""The plan of a run: everything that its tasks have in common, in one file of the spill folder.

A map or a reduce task names the plan and its own number, so its message is small. A worker process
reads the plan once. A plan depends on the input and the arguments alone, not on engine and workers:
both engines make the same output from the same plan.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec
import xxhash

from weft.tasks.blocks.block_file import write_file

from .input_split import InputChanged, InputFile, Piece

#: Lines that the driver reads for the ranges of a sort, for each reducer.
SAMPLES: Final = 400
#: Places of the input that the driver reads, altogether at most.
PROBES_MAX: Final = 2_000
_PROBE_LINES: Final = 8
_PROBE_BYTES: Final = 4 << 10


class JobPlan(msgspec.Struct, array_like=True, frozen=True):
    """One run of a job."""

    job: str
    params: dict[str, str]
    files: list[InputFile]
    partition_bytes: int
    splits: list[list[Piece]]
    reducers: int
    #: The least line of each reducer but the first, for a sort.
    bounds: list[bytes]
    #: The folder of the run in the spill folder, and the folder of unfinished output.
    spill: str
    drafts: str

    def same_work(self, other: JobPlan) -> bool:
        """True if the tasks of both plans have the same results."""
        fields = ("job", "params", "files", "splits", "reducers", "bounds", "spill", "drafts")
        return all(getattr(self, name) == getattr(other, name) for name in fields)


class PlanLost(Exception):
    """The plan of a task is gone: its run is over."""


def save_plan(plan: JobPlan) -> tuple[str, int]:
    """Writes the plan; returns the path and the checksum for the tasks."""
    data = msgspec.msgpack.encode(plan)
    path = os.path.join(plan.spill, "plan")
    write_file(path, [data])
    return path, xxhash.xxh3_64_intdigest(data)


@lru_cache(maxsize=8)
def load_plan(path: str, checksum: int) -> JobPlan:
    """Reads a plan. Raises PlanLost."""
    return msgspec.msgpack.decode(read_checked(path, checksum), type=JobPlan)


def save_outputs(folder: str, checksums: Sequence[int]) -> tuple[str, int]:
    """Writes the checksums of all maps, for the reduce tasks; returns path and checksum."""
    data = msgspec.msgpack.encode(list(checksums))
    checksum = xxhash.xxh3_64_intdigest(data)
    path = os.path.join(folder, f"outputs-{checksum:016x}")
    write_file(path, [data])
    return path, checksum


@lru_cache(maxsize=2)
def load_outputs(path: str, checksum: int) -> list[int]:
    """Reads the checksums of all maps. Raises PlanLost."""
    return msgspec.msgpack.decode(read_checked(path, checksum), type=list[int])


def read_checked(path: str, checksum: int) -> bytes:
    """Reads a file of the run. Raises PlanLost for a missing or changed one."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise PlanLost(
            f"{path}: {error.strerror}. The run is over, or this worker does not share the spill "
            "folder with the driver"
        ) from None
    if xxhash.xxh3_64_intdigest(data) != checksum:
        raise PlanLost(f"{path} has a wrong checksum")
    return data


def range_bounds(files: Sequence[InputFile], reducers: int) -> list[bytes]:
    """Lines that split the input in `reducers` ranges of similar size, from a sample.

    The sample is at evenly spaced places of the input, so the bounds are the same at every run. Of
    a long line the beginning is enough.
    """
    if reducers == 1:
        return []
    total = sum(file.size for file in files)
    probes = min(PROBES_MAX, SAMPLES * reducers // _PROBE_LINES + 1)
    found: list[bytes] = []
    base, place = 0, 0
    for file in files:
        while place < probes and total * place // probes < base + file.size:
            found += _probe(file, total * place // probes - base)
            place += 1
        base += file.size
    found.sort()
    return [found[len(found) * part // reducers] for part in range(1, reducers)] if found else []


def _probe(file: InputFile, start: int) -> list[bytes]:
    """The beginnings of some lines after a place of the file."""
    end = min(file.size, start + _PROBE_BYTES)
    try:
        with open(file.path, "rb", buffering=0) as handle:
            data = os.pread(handle.fileno(), end - max(0, start - 1), max(0, start - 1))
    except OSError as error:
        raise InputChanged(f"{file.path}: {error.strerror}") from None
    lines = data.split(b"\n")
    return lines[1 if start else 0 :][:_PROBE_LINES]
