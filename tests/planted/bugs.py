"""Known bugs of other coordinators and logs, each with the line that prevents it here.

The numbers are those of the projects' own lists. A bug without a number was found by this project's
tests, or could have been. A bug appears twice if two lines prevent it in two places.
"""

from typing import Final

from tests.planted.administration import ADMINISTRATION_BUGS
from tests.planted.asyncio_client import ASYNCIO_BUGS
from tests.planted.authentication import AUTHENTICATION_BUGS
from tests.planted.authorization import AUTHORIZATION_BUGS
from tests.planted.clusters import CLUSTER_BUGS
from tests.planted.commit_order import COMMIT_ORDER_BUGS
from tests.planted.completion import COMPLETION_BUGS
from tests.planted.consumer_groups import CONSUMER_GROUP_BUGS
from tests.planted.coordinator import COORDINATOR_BUGS
from tests.planted.disk import DISK_BUGS
from tests.planted.files import FILE_BUGS
from tests.planted.groups import GROUP_BUGS
from tests.planted.journal import JOURNAL_BUGS
from tests.planted.lane import LANE_BUGS
from tests.planted.log import LOG_BUGS
from tests.planted.made_anew import MADE_ANEW_BUGS
from tests.planted.members import MEMBER_BUGS
from tests.planted.metadata import METADATA_BUGS
from tests.planted.ours import OUR_BUGS
from tests.planted.pins import PIN_BUGS
from tests.planted.positions import POSITION_BUGS
from tests.planted.producers import PRODUCERS_BUGS
from tests.planted.quotas import QUOTA_BUGS
from tests.planted.replicas import REPLICA_BUGS
from tests.planted.replication import REPLICATION_BUGS
from tests.planted.serializers import SERIALIZER_BUGS
from tests.planted.sink import SINK_BUGS
from tests.planted.tls import TLS_BUGS

BUGS: Final = (
    *COORDINATOR_BUGS,
    *COMPLETION_BUGS,
    *CONSUMER_GROUP_BUGS,
    *GROUP_BUGS,
    *LANE_BUGS,
    *LOG_BUGS,
    *DISK_BUGS,
    *JOURNAL_BUGS,
    *PRODUCERS_BUGS,
    *METADATA_BUGS,
    *REPLICA_BUGS,
    *REPLICATION_BUGS,
    *CLUSTER_BUGS,
    *MEMBER_BUGS,
    *OUR_BUGS,
    *ASYNCIO_BUGS,
    *COMMIT_ORDER_BUGS,
    *POSITION_BUGS,
    *PIN_BUGS,
    *ADMINISTRATION_BUGS,
    *MADE_ANEW_BUGS,
    *SERIALIZER_BUGS,
    *SINK_BUGS,
    *FILE_BUGS,
    *AUTHENTICATION_BUGS,
    *AUTHORIZATION_BUGS,
    *QUOTA_BUGS,
    *TLS_BUGS,
)

COORDINATORS: Final = (
    "KAFKA-17754",
    "KIP-890",
    "KAFKA-14402",
    "KAFKA-12671",
    "KAFKA-14884",
    "KAFKA-14904",
    "KAFKA-14916",
    "KAFKA-16386",
    "KAFKA-9666",
    "KAFKA-5283",
    "KAFKA-18660",
    "KAFKA-19367",
    "KAFKA-19999",
    "KAFKA-16352",
    "KAFKA-10080",
    "KAFKA-5351",
    "KAFKA-7519",
    "KAFKA-9749",
    "KAFKA-5610",
    "KAFKA-5202",
    "KAFKA-6119",
    "KAFKA-5231",
    "KAFKA-9600",
    "KAFKA-9235",
    "KAFKA-9307",
    "KAFKA-15468",
    "KAFKA-5280",
    "KAFKA-9065",
    "KAFKA-14880",
    "KAFKA-13099",
    "KAFKA-17507",
    "KAFKA-15784",
    "KAFKA-7296",
    "KAFKA-5322",
    "KAFKA-5171",
    "YDB #52731",
    "YDB #51053",
    "Redpanda #5026",
    "Redpanda #18324",
    "Redpanda #8566",
    "Redpanda #30003",
    "Redpanda #14624",
    "Redpanda #18198",
)
"""Bugs of transaction coordinators."""

READERS: Final = (
    "KAFKA-9807",
    "KAFKA-5376",
    "KoP #1283",
    "Redpanda #10671",
    "Redpanda #28360",
    "Redpanda #29796",
    "Redpanda #7819",
    "KAFKA-7866",
    "KAFKA-12153",
    "KAFKA-13727",
    "KAFKA-8351",
    "KAFKA-6854",
    "KAFKA-13194",
    "KAFKA-10702",
    "KAFKA-5522",
    "KAFKA-20716",
)
"""Bugs of the last stable offset, the aborted index and compaction."""

PRODUCERS: Final = (
    "KAFKA-7190",
    "KAFKA-7298",
    "KAFKA-9144",
    "KAFKA-12520",
    "KAFKA-5829",
    "Redpanda #3038",
    "Redpanda #3039",
    "Redpanda #22687",
    "KAFKA-5283 (sequences)",
)
"""Bugs of producer state and sequences."""

NOT_PLANTED: Final = {
    "KAFKA-20716": "needs an unclean election: one broker has no other leader to elect",
}
"""Bugs that no single line prevents, with the reason."""
