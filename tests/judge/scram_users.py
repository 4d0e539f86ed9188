"""The users of SCRAM that the stories know, made as an administrator makes them."""

import time
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.judge.line import PATIENCE_SECONDS

ITERATIONS: Final = 4096
BOTH: Final = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
USERS: Final = {
    "alice": ("of alice", BOTH),
    "bob": ("of bob", BOTH),
    "carol": ("of carol", BOTH[1:]),
    "e,v=e": ("of eve", BOTH),
}
"""The password of each user, and the mechanisms for which it is known."""


def make_scram_users(address: str) -> None:
    """Make the users, and return when the broker knows them."""
    admin = AdminClient({"bootstrap.servers": address})
    for mechanism in BOTH:  # a user cannot be named twice in a request
        made = admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion(
                    user,
                    ScramCredentialInfo(mechanism, ITERATIONS),
                    password.encode(),
                    user.encode(),
                )
                for user, (password, mechanisms) in USERS.items()
                if mechanism in mechanisms
            ]
        )
        for each in made.values():
            each.result(PATIENCE_SECONDS)
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not _knows_all(admin):
        assert time.monotonic() < give_up
        time.sleep(0.01)  # between two questions, not for luck


def _knows_all(admin: AdminClient) -> bool:
    described = admin.describe_user_scram_credentials(list(USERS))
    assert isinstance(described, dict), "users are named"
    try:
        found = {user: each.result(PATIENCE_SECONDS) for user, each in described.items()}
    except KafkaException:  # not yet
        return False
    return all(
        len(found[user].scram_credential_infos) == len(mechanisms)
        for user, (_, mechanisms) in USERS.items()
    )
