"""Which task this is: what Spark says of it, in a Python worker."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

from pyspark import TaskContext

from weft.errors import UsageError

#: Names that Spark uses inside, unchanged since 2.x; should they change, `txnAppId` still works for
#: the first, and the second is told by an error.
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
#: An attempt is drawn, not counted: Spark's own counts begin again with each driver, and what a
#: dead driver's attempt has staged must not be taken for this one's.
ATTEMPT_BITS: Final = 62


@dataclass(frozen=True)
class Task:
    partition: int
    attempt: int
    #: Of a streaming query; None in a batch query.
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
