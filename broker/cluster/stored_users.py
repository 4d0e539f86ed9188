"""A user of SCRAM that is made in a metadata store of which no broker is asked: the first one."""

import random
from collections.abc import Sequence

from odradek.broker.cluster.security_keys import CannotChange
from odradek.broker.cluster.store import CLUSTER
from odradek.broker.cluster.user_keys import Credentials, pack_credentials, user_key
from odradek.broker.environment.env import Compare, MetaStore
from odradek.broker.security.scram_users import SALT_BYTES, ScramMechanism, credential_from
from odradek.protocol import scram


def credentials_of(
    password: str, mechanisms: Sequence[ScramMechanism], iterations: int, rng: random.Random
) -> Credentials:
    """Return what is kept of a password for each mechanism. It takes milliseconds."""
    made = {}
    for mechanism in mechanisms:
        salt = rng.randbytes(SALT_BYTES)
        salted = scram.salted_password(mechanism.algorithm, password, salt, iterations)
        made[mechanism] = credential_from(mechanism, salted, salt, iterations)
    return made


async def write_user(
    store: MetaStore, name: str, credentials: Credentials, *, replaces: bool
) -> None:
    """Make a user, or with `replaces` give an existing one these credentials and no others.

    Raises `CannotChange`, KafkaError.
    """
    key = user_key(name)
    cluster, _ = await store.range(CLUSTER)
    if CLUSTER not in cluster:
        raise CannotChange("There is no cluster in this metadata store: start a broker first.")
    found, _ = await store.range(key)
    if key in found and not replaces:
        raise CannotChange(f"There is a user {name!r}. --replace gives it the new password.")
    compare = Compare(key=key, mod_revision=found[key].mod_revision if key in found else 0)
    is_done, _ = await store.txn([compare], {key: pack_credentials(credentials)})
    if not is_done:
        raise CannotChange("The user was changed meanwhile by another program: run it again.")
