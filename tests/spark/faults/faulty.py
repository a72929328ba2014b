"""A data source with faults: `format("weft-faulty")` is weft with a trap.

The product has no hooks for faults: the trap is in subclasses of its reader and writer. A trap
springs once, at one point of one query, in the first process that reaches the point.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from weft.spark.input_partitions import Share
from weft.spark.options import StreamRead, Use, Write
from weft.spark.source import WeftDataSource
from weft.spark.stream_reader import WeftStreamReader
from weft.spark.stream_writer import WeftStreamWriter

#: Points at which a trap may be, in the order in which a batch passes them.
POINTS: Final = ("reserved", "logged", "mid-read", "mid-write", "staged", "published")
#: Nothing springs in the first batches: there should be something to lose.
BATCH_MIN: Final = 1
WAIT_S_MAX: Final = 150.0
SLOW_S: Final = 6.0


@dataclass(frozen=True)
class Trap:
    folder: str
    point: str
    action: str

    def at(self, point: str, batch: int) -> None:
        """Spring, if this is the trap's point and no process was here before."""
        if point != self.point or batch < BATCH_MIN:
            return
        if self.action in {"fail", "slow"}:
            self._in_first_attempt()
        elif self._first():
            getattr(self, "_" + self.action.replace("-", "_"))()

    def _first(self) -> bool:
        try:
            os.close(os.open(Path(self.folder) / "sprung", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _in_first_attempt(self) -> None:
        """Every task's first attempt fails half-way; or the first task's is slow."""
        context = TaskContext.get()
        assert context is not None, "in a task"
        if self.action == "slow" and context.partitionId():
            return
        if context.attemptNumber():
            (Path(self.folder) / "second").touch()
            return
        (Path(self.folder) / "sprung").touch()
        if self.action == "fail":
            raise RuntimeError("a planted failure")
        time.sleep(SLOW_S)

    def _kill_driver(self) -> None:
        for pid in map(int, (Path(self.folder) / "driver").read_text().split()):
            os.kill(pid, signal.SIGKILL)
        os._exit(1)

    def _kill_executor(self) -> None:
        pid = os.getpid()
        while b"ExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
            assert pid > 1, "no executor above this worker"
        os.kill(pid, signal.SIGKILL)
        os._exit(1)

    def _ask(self) -> None:
        """Ask the harness to inject its fault; continue afterwards."""
        folder = Path(self.folder)
        (folder / "ask").touch()
        end = time.monotonic() + WAIT_S_MAX
        while not (folder / "go").exists():
            assert time.monotonic() < end, "nobody did the harm"
            time.sleep(0.01)

    def _tell(self) -> None:
        """Ask the harness to inject its fault meanwhile."""
        (Path(self.folder) / "ask").touch()


class FaultyReader(WeftStreamReader):
    def __init__(self, options: StreamRead, schema: StructType, trap: Trap) -> None:
        super().__init__(options, schema)
        self._trap = trap

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        end = super().latestOffset(start, limit)
        if end != start:
            self._trap.at("reserved", end["r"] - 1)
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if end != start:
            self._trap.at("logged", end["r"] - 1)
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        for batch in super().read(partition):
            yield batch.slice(0, batch.num_rows // 2)
            self._trap.at("mid-read", partition.pieces[0].number - 1)
            yield batch.slice(batch.num_rows // 2)


class FaultyWriter(WeftStreamWriter):
    def __init__(self, options: Write, schema: StructType, trap: Trap) -> None:
        super().__init__(options, schema)
        self._trap = trap

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return super().write(self._watched(iterator))

    def _watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """At the end of its rows a task has staged all but the last of them."""
        context = TaskContext.get()
        assert context is not None, "in a task"
        yield from batches
        self._trap.at("mid-write", int(context.getLocalProperty("streaming.sql.batchId") or 0))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._trap.at("staged", batchId)
        super().commit(messages, batchId)
        self._trap.at("published", batchId)


class FaultySource(WeftDataSource):
    """Takes the options of weft, and `trap`, `point` and `action`, which may be empty."""

    def __init__(self, options: Mapping[str, str]) -> None:
        given = dict(options)
        self._trap = Trap(*(given.pop(name, "") for name in ("trap", "point", "action")))
        super().__init__(given)

    @classmethod
    def name(cls) -> str:
        return "weft-faulty"

    def streamReader(self, schema: StructType) -> FaultyReader:
        return FaultyReader(StreamRead.of(self._parsed), schema, self._trap)

    def streamWriter(self, schema: StructType, overwrite: bool) -> FaultyWriter:
        return FaultyWriter(Write.of(self._parsed, Use.STREAM_WRITE), schema, self._trap)
