"""The identity of a Spark task, as Spark reports it in a Python worker."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

from pyspark import TaskContext

from weft.errors import UsageError

#: Internal names of Spark, unchanged since 2.x. If they change, `txnAppId` still replaces the
#: first, and an error reports the second.
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
#: An attempt is a random number, not a count: Spark's own counts restart with each driver, and rows
#: staged by an attempt of a dead driver must not count as rows of this attempt.
ATTEMPT_BITS: Final = 62


@dataclass(frozen=True)
class Task:
    partition: int
    attempt: int
    #: Set in a streaming query; None in a batch query.
    query: str | None
    batch: int | None

    @classmethod
    def here(cls) -> Task:
        context = TaskContext.get()
        if context is None:
            raise UsageError("this is not a Spark task: a writer writes in one")
        batch = context.getLocalProperty(_BATCH)
        return cls(
            context.partitionId(),
            secrets.randbits(ATTEMPT_BITS),
            context.getLocalProperty(_QUERY),
            int(batch) if batch is not None else None,
        )
