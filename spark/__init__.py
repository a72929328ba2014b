"""Weft as a Spark data source: `spark.readStream.format("weft")`, `writeStream.format("weft")`.

Spark finds it by itself: it looks for packages named `pyspark_*`, and `pyspark_weft` is one. Where
it cannot look (an editable install is invisible to it) call `register` once per session. The rest
of this package is loaded when a query needs it, on whichever machine needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .lag import Lag, LagListener

__all__ = ["Lag", "LagListener", "register"]


def register(spark: SparkSession) -> None:
    """Makes `format("weft")` known to this session."""
    from pyspark_weft import DefaultSource

    spark.dataSource.register(DefaultSource)


def __getattr__(name: str) -> Any:
    if name in {"Lag", "LagListener"}:
        from . import lag

        return getattr(lag, name)
    raise AttributeError(f"module 'weft.spark' has no attribute {name!r}")
