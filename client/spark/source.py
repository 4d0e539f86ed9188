"""The data source that `format("odradek")` names."""

from odradek.extras import imports_of

with imports_of("spark", "odradek.client.spark"):
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from odradek.client.spark.columns import read_schema
    from odradek.client.spark.errors import sentence_first
    from odradek.client.spark.options import OptionError, read_options, write_options
    from odradek.client.spark.reader import BatchReader
    from odradek.client.spark.stream_reader import StreamReader
    from odradek.client.spark.writer import BatchWriter, StreamWriter


class OdradekSource(DataSource):
    """The data source for topics, as batches and as streams. Writes are exactly-once.

    Spark makes an object wherever it needs one. It has only the options.
    """

    @classmethod
    def name(cls) -> str:
        return "odradek"

    @sentence_first
    def schema(self) -> StructType:
        # Spark does not pass here whether this is a batch or a stream. The columns do not depend on
        # it, and the other options are checked where it is known.
        include = self.options.get("includeheaders", "false").strip().lower() == "true"
        return read_schema(include_headers=include)

    @sentence_first
    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(read_options(self.options, "batch"), schema)

    @sentence_first
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(read_options(self.options, "stream"), schema)

    @sentence_first
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise OptionError(
                "Save mode Overwrite not allowed for Kafka. Allowed save modes are Append and "
                'ErrorIfExists (default). Here: say .mode("append"); to begin anew, delete the '
                "topic first."
            )
        return BatchWriter(write_options(self.options, "batch"), schema)

    @sentence_first
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return a stream's writer. `overwrite` (output mode complete) appends, as Kafka's does."""
        return StreamWriter(write_options(self.options, "stream"), schema)
