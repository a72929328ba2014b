"""A quicker start for Python workers: `spark.python.daemon.module=weft.spark.daemon`.

Spark forks its Python workers from one daemon for each executor, and each worker then imports what
it needs: Arrow, pandas, Spark's own modules, Weft's client. Here the daemon has imported all that
before it forks. It connects to nothing: that is each worker's own to do.
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
    "weft.client.sync",
    "weft.spark.batch_reader",
    "weft.spark.batch_writer",
    "weft.spark.stream_reader",
    "weft.spark.stream_writer",
)


def main() -> None:
    for module in _WANTED:
        try:
            importlib.import_module(module)
        except ImportError:  # another Spark: the worker that needs it says so
            continue
    from pyspark import daemon

    daemon.manager()


if __name__ == "__main__":
    main()
