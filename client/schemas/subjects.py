"""The subject under which a schema is registered, from the topic and the name of the record.

Any function of these two arguments will do, also those of confluent-kafka.
"""

from collections.abc import Callable
from typing import Any

from odradek.client.schemas.registered import SchemaRefused
from odradek.client.serialization import SerializationContext

SubjectOf = Callable[[Any, str | None], str | None]
"""A function of the `SerializationContext` and of the record's name that returns a subject."""


def topic_subject(context: SerializationContext, record_name: str | None) -> str:
    """Return `TOPIC-value` or `TOPIC-key`: a topic has one schema, which may evolve."""
    return f"{context.topic}-{context.field}"


def record_subject(context: SerializationContext, record_name: str | None) -> str:
    """Return the name of the record: a topic has records of several kinds, which evolve each."""
    return _named(context, record_name)


def topic_record_subject(context: SerializationContext, record_name: str | None) -> str:
    """Return `TOPIC-NAME`: as `record_subject`, for each topic by itself."""
    return f"{context.topic}-{_named(context, record_name)}"


def _named(context: SerializationContext, record_name: str | None) -> str:
    if record_name is None:
        raise SchemaRefused(
            f"the {context.field} of topic {context.topic!r} has no subject: its schema has no "
            f"name (a title, in JSON Schema); give it one, or use topic_subject"
        )
    return record_name
