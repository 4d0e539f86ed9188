"""Rare points that a long run of seeds must have reached, or it would prove little."""

from typing import Final

RIGHTS: Final = (
    "a right was taken away while it was used",
    "a right was taken away from a long poll",
    "a right was taken away in a transaction",
)
"""The points that are reached where users have rights that change."""

MARKS: Final = (
    "before-prepare",
    "after-prepare",
    "between-markers",
    "an fsync stalls",
    "down while it served",
    "down before it served",
    "writer was made anew",
    "copier was made anew",
    "single was made anew",
    "raw was made anew",
    "a topic was made anew",
    "the epochs of a producer ran out",
    "a member of a group must revoke",
    "a member of a group was fenced",
    "a member of a group went on where another had been",
    "a commit of a member was refused",
    "a topic under load was made anew",
    "an id was free after its topics were made anew",
    "a sink committed to topics that are made anew",
    "a processor committed",
    "a processor was killed",
    "a processor lost its partitions before its commit",
    *RIGHTS,
)
"""The points that every kind of world reaches. Each kind of fault is a mark of its own name."""

CLUSTER_MARKS: Final = ("a pause was longer than a lease", "damage is gone")
"""The points that worlds of several brokers reach besides."""
