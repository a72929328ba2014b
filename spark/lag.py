"""The lag of a query: the messages that wait in its queues, and their age.

Spark's progress reports the position of a source; this source adds its backlog to that report. A
listener makes no request to the cluster: it only reads the query's own reports.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)


@dataclass(frozen=True)
class Lag:
    """The lag of one source of one query after one micro-batch."""

    query: str
    batch: int
    queue: str
    subscription: str
    #: Waiting messages of the queue that are not reserved, their bytes, and the age of the oldest.
    messages: int
    bytes: int
    oldest_ms: int
    #: Rows of this micro-batch, and its rows per second.
    rows: int
    rows_per_s: float

    def __str__(self) -> str:
        behind = f"{self.messages:,} messages behind"
        if self.messages:
            behind += f", the oldest {self.oldest_ms / 1000:.1f} s old"
        return (
            f"{self.query}: batch {self.batch}, {self.rows:,} rows at {self.rows_per_s:,.0f}/s; "
            f"{self.queue}: {behind}"
        )


class LagListener(StreamingQueryListener):
    """Reports the lag after each micro-batch; prints a line by default.

    Register the listener with `spark.streams.addListener(LagListener())`. Pass a function to
    replace the printing.
    """

    def __init__(self, tell: Callable[[Lag], object] = print) -> None:
        self._tell = tell

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        for lag in lags(json.loads(event.progress.json)):
            self._tell(lag)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass


def lags(progress: dict[str, Any]) -> list[Lag]:
    """Returns the lag of each Weft source in the progress of a query."""
    return [
        Lag(
            progress.get("name") or progress["id"],
            progress["batchId"],
            latest["queue"],
            latest["subscription"],
            latest["backlog"],
            latest["backlogBytes"],
            latest["oldestMs"],
            source.get("numInputRows", 0),
            source.get("processedRowsPerSecond") or 0.0,
        )
        for source in progress["sources"]
        if isinstance(latest := source.get("latestOffset"), dict) and "backlog" in latest
    ]
