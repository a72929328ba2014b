"""Weft as a Spark data source: `spark.readStream.format("weft")`, `writeStream.format("weft")`.

Spark discovers packages named `pyspark_*`, so it finds `pyspark_weft` without configuration. Where
discovery fails (Spark does not see an editable install), call `register` once per session. The
other modules of this package are loaded when a query needs them, on the machine that needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .lag import Lag, LagListener
    from .worker_gang import workers

__all__ = ["Lag", "LagListener", "register", "workers"]


def register(spark: SparkSession) -> None:
    """Registers `format("weft")` in a Spark session."""
    from pyspark_weft import DefaultSource

    spark.dataSource.register(DefaultSource)


def __getattr__(name: str) -> Any:
    if name in {"Lag", "LagListener"}:
        from . import lag

        return getattr(lag, name)
    if name == "workers":
        from .worker_gang import workers

        return workers
    raise AttributeError(f"module 'weft.spark' has no attribute {name!r}")
