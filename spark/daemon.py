"""A faster start for Python workers: `spark.python.daemon.module=weft.spark.daemon`.

Spark forks its Python workers from one daemon per executor, and each worker then imports its
modules: Arrow, pandas, Spark's own modules, Weft's client. This daemon imports all of them before
the fork. The daemon opens no connections: each worker opens its own.
"""

from __future__ import annotations

import importlib
from typing import Final

_WANTED: Final = (
    "pandas",
    "pyarrow.compute",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.worker",
    "pyspark_weft",
    "weft.client.sync_client",
    "weft.spark.batch_reader",
    "weft.spark.batch_writer",
    "weft.spark.stream_reader",
    "weft.spark.stream_writer",
)


def main() -> None:
    for module in _WANTED:
        try:
            importlib.import_module(module)
        except ImportError:  # another version of Spark: the worker that needs the module fails
            continue
    from pyspark import daemon

    daemon.manager()


if __name__ == "__main__":
    main()
