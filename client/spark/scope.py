"""The scope of a decision: who writes, and where to. Decisions of different scopes never meet.

The writer is a streaming query, by the id in its checkpoint's metadata, or an application
(`txnAppId`). An application that writes in foreachBatch is told apart by the query, too: a new
checkpoint is another query, and a checkpoint that was moved or restored is the same one.

The target is the topic of the option `topic`, by its name and its id, so a topic that was deleted
and made anew is another target. Without the option the target is "by rows".

A part that is not known matches every value of it. So a decision of an earlier version, which had
only the writer's id, still counts, and a write without a query cannot be told from a retry.
"""

from typing import Final, Self
from uuid import UUID

from odradek.client.blocking import Admin
from odradek.client.spark.options import WriteOptions
from odradek.client.spark.topic_ids import find_topic_id
from odradek.late import dataclass

BY_ROWS: Final = ""
"""The topic of a write whose rows name their topics."""
SEPARATOR: Final = "/"
"""It is in no id and no topic's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The writer and the target of a decision.

    `write_id` is the id of the streaming query, of the application, or of one batch write.
    `query_id` is the query in whose foreachBatch an application writes.
    """

    write_id: str
    query_id: str | None = None
    topic: str | None = None
    topic_id: UUID | None = None

    @property
    def name(self) -> str:
        """Return the scope as text: the key of its decisions. An earlier version had `write_id`."""
        if self.topic is None:
            return self.write_id
        topic_id = "" if self.topic_id is None else str(self.topic_id)
        return SEPARATOR.join((self.write_id, self.query_id or "", self.topic, topic_id))

    @classmethod
    def parse(cls, name: str) -> Self:
        """Return the scope of a name. Raises ValueError if it is none."""
        if SEPARATOR not in name:
            return cls(write_id=name)
        write_id, query_id, topic, topic_id = name.split(SEPARATOR)
        return cls(
            write_id=write_id,
            query_id=query_id or None,
            topic=topic,
            topic_id=UUID(topic_id) if topic_id else None,
        )

    def matches(self, other: "Scope") -> bool:
        """Return True if the two are one scope, as far as both are known."""
        # invariant spark 3: Two targets share no decision, and neither do a topic and the one that
        # is made anew under its name. What one of two does not know matches.
        # plant a decision of the sink counts for every topic
        # plant a decision of the sink counts for a topic that was made anew
        # plant a decision of the sink counts for every checkpoint of an application
        # plant a decision without a target is not believed after the upgrade
        # plant a topic that is made anew while a batch is written gets a part of it
        parts = (
            (self.query_id, other.query_id),
            (self.topic, other.topic),
            (self.topic_id, other.topic_id),
        )
        return self.write_id == other.write_id and all(
            mine == others for mine, others in parts if mine is not None and others is not None
        )

    @property
    def target(self) -> str:
        """Return the target in words."""
        if self.topic is None:
            return "a target that is not known"
        if self.topic == BY_ROWS:
            return "the topics that the rows name"
        return f"the topic {self.topic}" + (f" (id {self.topic_id})" if self.topic_id else "")


def find_scope(admin: Admin, options: WriteOptions, write_id: str, query_id: str | None) -> Scope:
    """Return the scope of a write, with the id that its topic has now.

    The id is not known if the broker has none, or if there is no such topic.
    """
    return Scope(
        write_id=write_id,
        query_id=query_id,
        topic=options.topic or BY_ROWS,
        topic_id=find_topic_id(admin, options.topic) if options.topic else None,
    )
