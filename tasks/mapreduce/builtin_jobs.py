"""The jobs of `weft run`: sort, word count and grep, and the app of their workers."""

from __future__ import annotations

import os
from typing import Final, Unpack

from weft.client import arguments
from weft.tasks.app import App

from .job import FlowJob, RunOptions, RunSummary
from .line_flow import GrepFlow, SortFlow, matcher
from .pair_flow import WordCountFlow

PATTERN_CHARS_MAX: Final = 10_000

#: Workers for runs with `workers=0`: `weft worker weft.tasks.mapreduce:app`.
app = App("mapreduce")


class GrepJob(FlowJob):
    """Lines that match a pattern, in the order of the input."""

    def run(  # type: ignore[override]
        self,
        source: str | os.PathLike[str],
        output: str | os.PathLike[str],
        pattern: str,
        **options: Unpack[RunOptions],
    ) -> RunSummary:
        """Runs grep with a regular expression of Python's `re`, over bytes.

            mapreduce.grep.run("in", "out", "error|warning")

        Raises InvalidArgument for a bad pattern, and as `MapReduce.run`.
        """
        arguments.check_text("pattern", pattern, 1, PATTERN_CHARS_MAX)
        matcher(pattern)
        return self._run(source, output, {"pattern": pattern}, options)


sort = FlowJob(app, "sort", SortFlow())
wordcount = FlowJob(app, "wordcount", WordCountFlow())
grep = GrepJob(app, "grep", GrepFlow())
