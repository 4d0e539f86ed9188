"""Which columns a write takes, from its schema alone."""

import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from odradek.client.spark.columns import HEADERS, ColumnError, check_write_schema

ALL = (
    StructType()
    .add("key", StringType())
    .add("value", BinaryType())
    .add("headers", HEADERS)
    .add("topic", StringType())
    .add("partition", IntegerType())
)


@pytest.mark.parametrize("field", ALL.fields, ids=lambda field: field.name)
def test_two_columns_of_one_name_are_refused_before_a_task_begins(field: StructField) -> None:
    check_write_schema(ALL, has_topic_option=False)
    twice = StructType([*ALL.fields, field])
    with pytest.raises(
        ColumnError, match=f"^There are 2 columns {field.name}: rename or drop one.$"
    ):
        check_write_schema(twice, has_topic_option=False)


def test_other_columns_may_have_one_name() -> None:
    both = StructType([*ALL.fields]).add("note", StringType()).add("note", StringType())
    check_write_schema(both, has_topic_option=False)
