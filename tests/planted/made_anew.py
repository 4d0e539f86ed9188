"""What the broker takes for the same thing because it has the same name."""

from typing import Final

from tests.planted import reach
from tests.planted.bug import Planted

ANEW: Final = "tests/broker/api/test_made_anew.py::test_"
PEERS: Final = "tests/broker/membership/test_peers.py::test_"

MADE_ANEW_BUGS: Final = (
    Planted(
        bug="a partition is owed its marker as long as any topic has its name",
        where="Peers.is_gone",
        old="not partition.may_be_of(topic_id) or (is_whole and where not in partitions)",
        new="False",
        tests=(
            f"{ANEW}an_id_is_free_although_its_topic_was_made_anew_with_fewer_partitions",
            f"{PEERS}a_partition_is_gone_when_another_topic_has_its_name",
        ),
        seed=3,
        fixed=reach.ANEW,
    ),
    Planted(
        bug="a topic made anew gets the markers of the one before",
        where="TopicIdPartition.may_be_of",
        old="self.id_bytes in (NO_ID, topic_id.bytes)",
        new="True",
        tests=(
            f"{ANEW}a_topic_made_anew_gets_no_marker_of_the_one_before",
            f"{ANEW}a_leader_takes_no_marker_for_another_topic_of_the_name",
        ),
        seed=3,
        fixed=reach.ANEW,
    ),
    Planted(
        bug="a log made anew is taken for the damaged one of its name",
        where="Partitions.delete",
        old="await self.run_notes.write()",
        tests=(
            "tests/broker/partitions/test_made_anew.py::"
            "test_a_log_made_anew_is_not_suspected_for_the_damaged_one_of_its_name",
        ),
    ),
    Planted(
        bug="a replica of a topic made anew leaves the in-sync set for the damaged one of its name",
        where="DamagedReplicas._replace",
        old="if image.topics[where.topic].topic_id != self._partitions.topic_id_of(where):",
        new="if False:",
        tests=(
            "tests/broker/replication/test_damaged.py::"
            "test_a_damaged_log_of_the_topic_before_takes_no_replica_out_of_the_new_one",
        ),
    ),
    Planted(
        bug="what was added to a transaction before counts for a topic made anew",
        where="state.verify",
        old="partition.is_in(transaction.partitions)",
        new="partition.by_name in {each.by_name for each in transaction.partitions}",
        tests=(f"{ANEW}what_a_client_added_before_is_not_in_a_topic_made_anew",),
    ),
)
