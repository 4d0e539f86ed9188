"""Lets Spark find the data source: it looks for `DefaultSource` in every module named `pyspark_*`.

Spark imports such modules in every session, whether or not their source is used, and passes their
errors on. So this one imports nothing of ours, and nothing that may be missing, until it is used.
"""

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """`format("odradek")`: hands everything to `odradek.client.spark.source`."""

    @classmethod
    def name(cls) -> str:
        return "odradek"

    def _source(self) -> Any:
        from odradek.client.spark.source import OdradekSource

        return OdradekSource(self.options)

    def schema(self) -> StructType:
        columns: StructType = self._source().schema()
        return columns

    def reader(self, schema: StructType) -> DataSourceReader:
        reader: DataSourceReader = self._source().reader(schema)
        return reader

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        reader: DataSourceStreamReader = self._source().streamReader(schema)
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        writer: DataSourceWriter = self._source().writer(schema, overwrite)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        writer: DataSourceStreamArrowWriter = self._source().streamWriter(schema, overwrite)
        return writer
