"""`format("weft")`: returns the reader or writer for each kind of query.

Every session that looks for data sources imports this module, on the driver and on executors. So
the module imports only Spark's own base class; all other modules are loaded on demand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from .batch_reader import WeftBatchReader
    from .batch_writer import WeftBatchWriter
    from .stream_reader import WeftStreamReader
    from .stream_writer import WeftStreamWriter


class WeftDataSource(DataSource):
    """Reads and writes queues. Makes no request to a node before a query runs."""

    def __init__(self, options: Mapping[str, str]) -> None:
        from .options import Options

        super().__init__(dict(options))
        self._parsed = Options(options)

    @classmethod
    def name(cls) -> str:
        return "weft"

    def schema(self) -> StructType:
        from .schema import columns

        return columns(self._parsed.get("includeHeaders", False))

    def streamReader(self, schema: StructType) -> WeftStreamReader:
        from .options import StreamRead
        from .stream_reader import WeftStreamReader

        return WeftStreamReader(StreamRead.of(self._parsed), schema)

    def reader(self, schema: StructType) -> WeftBatchReader:
        from .batch_reader import WeftBatchReader
        from .options import BatchRead

        return WeftBatchReader(BatchRead.of(self._parsed), schema)

    # Spark calls the next two by keyword, with exactly these parameter names.
    def streamWriter(self, schema: StructType, overwrite: bool) -> WeftStreamWriter:
        from .options import Use, Write
        from .stream_writer import WeftStreamWriter

        return WeftStreamWriter(Write.of(self._parsed, Use.STREAM_WRITE), schema)

    def writer(self, schema: StructType, overwrite: bool) -> WeftBatchWriter:
        from .batch_writer import WeftBatchWriter
        from .options import Use, Write

        return WeftBatchWriter(Write.of(self._parsed, Use.BATCH_WRITE), schema, overwrite)
