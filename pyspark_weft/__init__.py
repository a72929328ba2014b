"""What Spark looks for: a package named `pyspark_*` with a class `DefaultSource`.

Every Spark session that uses any Python data source imports this, so it must cost next to nothing:
everything else is loaded when `format("weft")` is really used.
"""

from __future__ import annotations

from weft.spark.source import WeftDataSource

__all__ = ["DefaultSource"]


class DefaultSource(WeftDataSource):
    """`format("weft")`."""
