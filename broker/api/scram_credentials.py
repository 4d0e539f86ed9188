"""AlterUserScramCredentials, key 51, version 0: users of SCRAM are made, changed and deleted.

Behaviour: the request brings salted passwords. The broker keeps the keys that follow from them, and
never those. When the answer is sent, this broker goes by the new credentials; the others do when
their watch of the store has brought them. A user that is named twice is answered
DUPLICATE_RESOURCE, also with two mechanisms, if nothing is wrong with the first change.

Versions: there is one.

Differs from Kafka:

- A salted password has the size of its hash, and a salt 1 to 1,024 bytes. AlterUserScramCredentials
  answers UNACCEPTABLE_CREDENTIAL otherwise: nobody could use such a credential. There are at most
  100,000 users (POLICY_VIOLATION), and their passwords can be changed then.
- A deletion of a user that does not exist is noticed last. With a second change of the same user it
  is answered DUPLICATE_RESOURCE, not RESOURCE_NOT_FOUND.
- Users wait for every broker. While a broker of a version without SCRAM is registered, or away and
  not forgotten, AlterUserScramCredentials answers UNSUPPORTED_VERSION.
"""

import hashlib
from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.served_api import ServedApi
from odradek.broker.cluster.users import UserChange
from odradek.broker.environment.turns import Turns
from odradek.broker.security.rights import ALTER_CLUSTER
from odradek.broker.security.scram_users import (
    ITERATIONS_MAX,
    SALT_MAX_BYTES,
    ScramMechanism,
    credential_from,
)
from odradek.protocol import scram
from odradek.protocol.apis.credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.errors import ErrorCode, KafkaError

NAME_MAX_CHARACTERS: Final = 1024
Wanted = ScramCredentialDeletion | ScramCredentialUpsertion
CREDENTIAL_STEPS: Final = 10
"""The cost of a credential's keys, in steps of a turn."""


async def alter_user_scram_credentials(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    turns = Turns()
    wanted: list[Wanted] = [*request.deletions, *request.upsertions]
    names = await turns.distinct(each.name for each in wanted)
    await context.expect(len(names) * 2)
    errors: dict[str, KafkaError] = {}
    try:
        context.access.check_cluster(ALTER_CLUSTER)
        changes: dict[str, UserChange] = {}
        for each in wanted:
            await turns.take(CREDENTIAL_STEPS)
            if each.name in errors:
                continue  # the first error of a user is returned, as in Kafka
            try:
                if changes.pop(each.name, None) is not None:
                    raise KafkaError(
                        ErrorCode.DUPLICATE_RESOURCE,
                        "A user credential cannot be altered twice in the same request",
                    )
                changes[each.name] = _change_of(each)
            except KafkaError as error:
                errors[each.name] = error
        if changes:
            errors |= await context.core.users.alter(list(changes.values()))
    except KafkaError as error:
        errors = {**dict.fromkeys(names, error), **errors}
    results = await turns.map(lambda name: _result(name, errors.get(name)), list(names))
    return AlterUserScramCredentialsResponse(results=tuple(results))


def _change_of(wanted: Wanted) -> UserChange:
    """Return what a request asks for. Raises KafkaError for a credential that cannot be."""
    if not wanted.name:
        raise _unacceptable("Username must not be empty")
    if len(wanted.name) > NAME_MAX_CHARACTERS:
        raise _unacceptable(f"Username must not have more than {NAME_MAX_CHARACTERS} characters")
    if wanted.mechanism not in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    mechanism = ScramMechanism(wanted.mechanism)
    if isinstance(wanted, ScramCredentialDeletion):
        return UserChange(user=wanted.name, mechanism=mechanism, credential=None)
    if wanted.iterations < scram.ITERATIONS_MIN:
        raise _unacceptable("Too few iterations")
    if wanted.iterations > ITERATIONS_MAX:
        raise _unacceptable("Too many iterations")
    size = hashlib.new(mechanism.algorithm).digest_size
    if len(wanted.salted_password) != size or not 1 <= len(wanted.salt) <= SALT_MAX_BYTES:
        raise _unacceptable("The salt or the salted password has another size")
    credential = credential_from(
        mechanism, bytes(wanted.salted_password), bytes(wanted.salt), wanted.iterations
    )
    return UserChange(user=wanted.name, mechanism=mechanism, credential=credential)


def _unacceptable(message: str) -> KafkaError:
    return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)


def _result(name: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(
        user=name,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )


SERVED: Final = (
    ServedApi(ALTER_USER_SCRAM_CREDENTIALS, alter_user_scram_credentials, (Need(ALTER_CLUSTER),)),
)
