"""Map-reduce over files, on the workers of an app or on Spark.

from weft.tasks import mapreduce

mapreduce.sort.run("in", "out", partition_bytes="1M")
mapreduce.wordcount.run("in", "out", workers=4)
mapreduce.grep.run("in", "out", "error|warning", engine="spark")

`mapreduce.MapReduce` makes a job of your own functions. Splits, spill files, output and its commit
are the same code for both engines, so their output is equal byte by byte. This is the map-reduce
of Albatross (paper 4, section 5.3): map and reduce tasks in a distributed queue. It departs from
the paper in three points. The driver waits between the stages, instead of counters in the queue; a
driver that dies is replaced by the next run. Intermediate data is in files that all workers share,
pinned by checksums in the committed results, instead of in a worker's memory. And a task may run
twice, while its result counts once.
"""

from __future__ import annotations

from .builtin_jobs import app, grep, sort, wordcount
from .data_generator import DataCheck, generate
from .data_validation import validate
from .job import MapReduce, RunOptions, RunSummary

__all__ = [
    "DataCheck",
    "MapReduce",
    "RunOptions",
    "RunSummary",
    "app",
    "generate",
    "grep",
    "sort",
    "validate",
    "wordcount",
]
