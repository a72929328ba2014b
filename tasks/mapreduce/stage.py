"""The work of one map and of one reduce task, and what a task reports to the driver.

Failures that another attempt cannot cure are reported as a result, with a code, so that the driver
stops the run at once: a full disk, an input that changed, a line beyond the limit.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from weft.errors import JobFailed, StorageFull
from weft.tasks.blocks.block_file import BlockDamaged

from .input_split import InputChanged, LineTooLong, read_lines
from .job_plan import JobPlan, PlanLost
from .line_flow import LineFlow
from .spill_file import read_segment, write_spill

T = TypeVar("T")

#: Codes of the reports of a task that cannot succeed.
FULL, CHANGED, LONG, OVER = "full", "changed", "long", "over"
_NO_SPACE: Final = {errno.ENOSPC, errno.EDQUOT}
#: The parts of an output file, written together.
_WRITE_BYTES: Final = 1 << 20


class StageProblem(msgspec.Struct, array_like=True, frozen=True):
    """Why no attempt can succeed."""

    code: str
    text: str


class MapResult(msgspec.Struct, array_like=True, frozen=True):
    """The committed result of a map task. The checksum names and pins the spill file."""

    checksum: int = 0
    lines: int = 0
    spilled: int = 0
    problem: StageProblem | None = None
    #: The store with the output, if the workers share no files.
    store: str = ""


class ReduceResult(msgspec.Struct, array_like=True, frozen=True):
    """The committed result of a reduce task."""

    #: The unfinished output file, by its name in the folder of drafts.
    draft: str = ""
    lines: int = 0
    size: int = 0
    #: Map tasks whose output is lost or damaged; the reduce task runs again after them.
    lost: list[int] = []
    problem: StageProblem | None = None
    #: The store with the draft, and its checksum, if the workers share no files.
    store: str = ""
    checksum: int = 0


def map_segments(plan: JobPlan, flow: LineFlow, number: int) -> tuple[list[bytes], int]:
    """Reads a split; returns a segment for each reducer, and the number of lines."""
    data = read_lines(plan.files, plan.splits[number])
    return flow.split(data, number, plan), data.count(b"\n")


def run_map(plan: JobPlan, flow: LineFlow, number: int) -> MapResult:
    """A map task: writes a spill file."""
    segments, lines = map_segments(plan, flow, number)
    checksum = write_spill(plan.spill, number, segments)
    return MapResult(checksum, lines, sum(map(len, segments)))


def run_reduce(plan: JobPlan, flow: LineFlow, number: int, outputs: list[int]) -> ReduceResult:
    """A reduce task: reads its segment of each spill file, and writes a draft of the output."""
    lost: list[int] = []

    def segments() -> Iterator[bytes]:
        for each, checksum in enumerate(outputs):
            try:
                yield read_segment(plan.spill, each, checksum, number)
            except BlockDamaged:
                lost.append(each)

    result = write_draft(plan, number, flow.merge(segments(), plan))
    if not lost:
        return result
    os.unlink(os.path.join(plan.drafts, result.draft))
    return ReduceResult(lost=lost)


def write_draft(plan: JobPlan, number: int, chunks: Iterable[bytes]) -> ReduceResult:
    """Writes the output of a reducer, synced, under a name of this attempt.

    The driver gives the file its final name, so a late attempt of a slow worker cannot change the
    output of a run that is over.
    """
    name = f"part-{number:05d}-{secrets.token_hex(4)}"
    path = os.path.join(plan.drafts, name)
    lines = size = 0
    try:
        with open(path, "wb", buffering=_WRITE_BYTES) as file:
            for chunk in chunks:
                file.write(chunk)
                lines += chunk.count(b"\n")
                size += len(chunk)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is None:
            error.filename = path
        try:
            os.unlink(path)
        except OSError:
            pass
        raise
    return ReduceResult(name, lines, size)


def reported(work: Callable[[], T], result: Callable[[StageProblem], T], plan: str) -> T:
    """Runs the work; a failure that no attempt can cure becomes a result."""
    try:
        return work()
    except OSError as error:
        if error.errno in _NO_SPACE:
            return result(
                StageProblem(FULL, f"no space left on the disk of {_folder(error, plan)}")
            )
        if not os.path.exists(plan):
            return result(StageProblem(OVER, f"{plan} is gone: the run is over"))
        raise
    except StorageFull as error:
        return result(StageProblem(FULL, error.message))
    except InputChanged as error:
        return result(StageProblem(CHANGED, str(error)))
    except LineTooLong as error:
        return result(StageProblem(LONG, str(error)))
    except PlanLost as error:
        return result(StageProblem(OVER, str(error)))


def _folder(error: OSError, plan: str) -> str:
    where = error.filename if isinstance(error.filename, str) else plan
    return os.path.dirname(where)


_ADVICE: Final = {
    FULL: "free space there, or choose another folder (spill)",
    LONG: "split the line, or leave the file out",
    OVER: "all workers must share the input, the output and the spill folder",
}


def check_problem(problem: StageProblem | None) -> None:
    """Raises JobFailed for a problem."""
    if problem is not None:
        advice = _ADVICE.get(problem.code, "run the job again when the input does not change")
        raise JobFailed(f"{problem.text}: {advice}")
