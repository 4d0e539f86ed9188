"""The differences from Kafka of authentication and of access (`differences.py`)."""

from typing import Final

from tests.judge.difference import Difference

_INVALID: Final = r".*Authentication failed during authentication due to invalid credentials.*"

OF_ACCESS: Final = (
    Difference(
        name="A deletion of a user that does not exist is noticed last",
        story=r"users\.refused\[changes=deleted.*not there.*",
        kafka=r"(?P<what>.* -> u )RESOURCE_NOT_FOUND .*",
        ours=r"(?P<what>.* -> u )DUPLICATE_RESOURCE .*",
    ),
    Difference(
        name="A client that has not authenticated may send little",
        story=r"(sasl\.(metadata_after|again_in)|scram\.in_between).*=(1|metadata)\]",
        kafka=r"metadata -> 0 brokers",
        ours=r"metadata -> closed",
    ),
    Difference(
        name="A user that does not exist costs as many messages and as much time as a wrong "
        "password",
        story=r"scram\.(first\[first=of (an unknown user|a user in capitals)\]|user_of_another.*)",
        kafka=rf"(?P<what>token .* -> ){_INVALID}|then -> closed",
        ours=r"(?P<what>token .* -> ).*r=<nonce>,s=<salt>,i=4096.*|then -> open",
    ),
    Difference(
        name="SCRAM's messages are checked as RFC 5802 has it: the binding",
        story=r"scram\.final\[final=(other binding|no binding|binding of y)\]",
        kafka=r"(?P<what>token .* -> ).*v=<signature>.*|then -> open",
        ours=rf"(?P<what>token .* -> ){_INVALID}|then -> closed",
    ),
    Difference(
        name="SCRAM's messages are checked as RFC 5802 has it: extensions that must be known",
        story=r"scram\.first\[first=with an extension that must be known\]",
        kafka=r"(?P<what>token .* -> ).*r=<nonce>,s=<salt>,i=4096.*|then -> open",
        ours=rf"(?P<what>token .* -> ){_INVALID}|then -> closed",
    ),
    Difference(
        name="SCRAM's messages are checked as RFC 5802 has it: extensions in the proof",
        story=r"scram\.final\[final=with an extension\]",
        kafka=rf"(?P<what>token .* -> ){_INVALID}|then -> closed",
        ours=r"(?P<what>token .* -> ).*v=<signature>.*|then -> open",
    ),
    Difference(
        name="SCRAM's messages are checked as RFC 5802 has it: the proof's size",
        story=r"scram\.final\[final=(short|empty) proof\]",
        kafka=r"(?P<what>token .* -> )closed",
        ours=rf"(?P<what>token .* -> ){_INVALID}",
    ),
    Difference(
        name="A session is renewed by the mechanism that it began with",
        story=r"scram\.again\[.*mechanism=SCRAM-SHA-512\]",
        kafka=r"(?P<what>handshake 'SCRAM-SHA-512' v1 -> )NONE .*",
        ours=r"(?P<what>handshake 'SCRAM-SHA-512' v1 -> )closed",
    ),
    Difference(
        name="A client cannot fetch as a follower",
        story=r"acls\..*Fetch as a follower.*",
        kafka=r"(?P<what>.*Fetch v12 -> \{NONE \{t zero \{)NOT_LEADER_OR_FOLLOWER\}\}\}",
        ours=r"(?P<what>.*Fetch v12 -> \{NONE \{t zero \{)TOPIC_AUTHORIZATION_FAILED\}\}\}",
    ),
    Difference(
        name="Metadata says that a topic is new",
        story=r"acls\..*Metadata creating.*",
        kafka=r"(?P<what>.*Metadata v12 -> \{\{)UNKNOWN_TOPIC_OR_PARTITION new zero\} NONE\}",
        ours=r"(?P<what>.*Metadata v12 -> \{\{)NONE new topic1( \{NONE\})+\} NONE\}",
    ),
    Difference(
        name="A refusal of a whole request repeats nothing of it",
        story=r"acls\..*(ListPartitionReassignments|DescribeUserScramCredentials).*",
        kafka=r"(?P<what>.* -> \{CLUSTER_AUTHORIZATION_FAILED) \{.*\}\}",
        ours=r"(?P<what>.* -> \{CLUSTER_AUTHORIZATION_FAILED)\}",
    ),
)
