"""Entry point for Spark, which searches packages named `pyspark_*` for a class `DefaultSource`.

Every Spark session with any Python data source imports this package, so the import must be cheap:
`weft.spark` is loaded on the first use of `format("weft")`.
"""

from __future__ import annotations

from weft.spark.source import WeftDataSource

__all__ = ["DefaultSource"]


class DefaultSource(WeftDataSource):
    """The data source behind `format("weft")`."""
