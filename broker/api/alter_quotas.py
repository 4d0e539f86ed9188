"""AlterClientQuotas, key 49, versions 0-1.

Behaviour: sets and removes quotas of users, client ids, both together, and addresses. Each entity
succeeds or fails on its own, with a sentence that says why. `validate_only` checks everything and
changes nothing. The quotas are kept in the metadata store. When the answer is sent, this broker
goes by the new ones; the others do when their watch of the store has brought them.

Versions: both are alike.

Differs from Kafka:

- An entity that is given twice in a request is not changed. AlterClientQuotas answers
  INVALID_REQUEST for it, as Kafka does, which makes the first change nevertheless.
- The quota of an address names an address. Kafka also takes the name of a host, and looks it up.
- A quota is a number. NaN is refused as a value that is not above 0. Kafka keeps it.
- A quota lets something pass. A whole number is 1 at least. A percentage or a rate of partitions is
  0.000001 at least. Kafka takes 1e-7 for a whole number, which is 0, and refuses 4999.9999999.
- Connections from the broker's own machine do not count, so a quota of addresses can be removed.
- The number of quotas is bounded. There are at most 10,000 entities (POLICY_VIOLATION), and names
  have up to 4,096 characters. A request that changes more than 50 entities may be applied in
  parts, if the store fails meanwhile.
- A quota of bytes or time is a bucket that fills evenly. The first wait of a client is as long as
  in Kafka. Kafka measures rates over samples: a client that waits as it is asked may be over its
  quota still, and a debt is forgotten with the samples.
- A connection waits for 20 s at most. In Kafka only the wait for request time has a bound.
- Quotas wait for every broker. While a broker of a version without quotas is registered, or away
  and not forgotten, AlterClientQuotas answers UNSUPPORTED_VERSION.
"""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Final

from odradek.broker.api.context import RequestContext
from odradek.broker.api.needs import Need
from odradek.broker.api.quotas import ITEMS_AN_ENTITY, to_data
from odradek.broker.api.served_api import ServedApi
from odradek.broker.cluster.client_quotas import Changes
from odradek.broker.environment.turns import Turns
from odradek.broker.quotas.entities import (
    CLIENT_ID,
    IP,
    LEAST,
    OF_ADDRESSES,
    OF_CLIENTS,
    TYPES,
    USER,
    Entity,
    QuotaBound,
    entity_of,
    is_address,
)
from odradek.broker.security.rights import ALTER_CLUSTER_CONFIGS
from odradek.protocol.apis.client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntryData,
    OpData,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.text import shortened

IN_KAFKAS_ORDER: Final = (CLIENT_ID, USER, IP)
"""The types in the order in which Kafka's messages have them."""
PARTS_MAX: Final = 4
"""The parts of an entity that are looked at. It has two at most, so more are an error already."""
NAME_MAX_CHARACTERS: Final = 4_096
"""The most characters of a name."""


async def alter_client_quotas(
    context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    turns = Turns()
    entities: dict[Entity, KafkaError | None] = {}
    changes: dict[Entity, Changes] = {}
    await context.expect(len(request.entries) * ITEMS_AN_ENTITY)
    denied = None
    try:
        context.access.check_cluster(ALTER_CLUSTER_CONFIGS)
    except KafkaError as error:
        denied = error
    for entry in request.entries:
        await turns.take()
        parts = {each.entity_type: each.entity_name for each in entry.entity[:PARTS_MAX]}
        named = tuple(sorted(parts.items(), key=itemgetter(0)))
        is_new = named not in entities
        entities[named] = denied
        if denied is not None:
            continue
        try:
            counts = await turns.distinct(op.key for op in entry.ops)
            if not is_new or len(counts) < len(entry.ops):
                changes.pop(entity_of(parts), None)
                raise _invalid(f"Ignoring duplicate entity {_shown(parts)}")
            bounds = _bounds_of(parts)
            changes[entity_of(parts)] = await _changes_of(entry.ops, bounds, turns)
        except KafkaError as error:
            entities[named] = error
    if changes and not request.validate_only:
        try:
            await context.core.quotas.alter(changes)
        except KafkaError as error:
            for named, found in entities.items():
                await turns.take()
                entities[named] = found or error
    return AlterClientQuotasResponse(
        entries=tuple(await turns.map(_to_altered, list(entities.items())))
    )


def _to_altered(found: tuple[Entity, KafkaError | None]) -> AlteredEntryData:
    named, error = found
    return AlteredEntryData(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        entity=to_data(named),
    )


def _bounds_of(parts: Mapping[str, str | None]) -> Mapping[str, QuotaBound]:
    """Return the quotas that an entity may have. Raises INVALID_REQUEST if it cannot be."""
    for kind, name in parts.items():
        if kind not in TYPES:
            raise _invalid(f"Unhandled client quota entity type: {shortened(kind)}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        if name is not None and len(name) > NAME_MAX_CHARACTERS:
            raise _invalid(
                f"The name of the {kind} has more than {NAME_MAX_CHARACTERS} characters."
            )
    if not parts:
        raise _invalid("Invalid empty client quota entity")
    if IP in parts and len(parts) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or "
            "ClientId"
        )
    address = parts.get(IP)
    if address is not None and not is_address(address):
        raise _invalid(
            f"{shortened(address)} is not a valid IP or resolvable host. Give an address."
        )
    return OF_ADDRESSES if IP in parts else OF_CLIENTS


async def _changes_of(
    ops: Sequence[OpData], bounds: Mapping[str, QuotaBound], turns: Turns
) -> Changes:
    """Return what an entity's quotas become. Raises INVALID_REQUEST."""
    changes: dict[str, float | None] = {}
    for op in ops:
        await turns.take()
        if not op.remove:
            _check_value(op, bounds)
            changes[op.key] = op.value
        elif op.key in bounds:  # removing one that cannot be is no error
            changes[op.key] = None
    return changes


def _check_value(op: OpData, bounds: Mapping[str, QuotaBound]) -> None:
    bound = bounds.get(op.key)
    if bound is None:
        raise _invalid(f"Invalid configuration key {shortened(op.key)}")
    if not op.value > 0:
        raise _invalid(f"Quota {op.key} must be greater than 0")
    if bound.most is not None:
        if op.value > bound.most:
            raise _invalid(f"Proposed value for {op.key} is too large for {bound.java_type}.")
        if bound.is_too_small(op.value) or bound.is_fraction(op.value):
            raise _invalid(f"{op.key} cannot be a fractional value.")
    if bound.is_too_small(op.value):
        raise _invalid(f"Quota {op.key} must be at least {LEAST:f}")


def _shown(parts: Mapping[str, str | None]) -> str:
    known = [kind for kind in IN_KAFKAS_ORDER if kind in parts]
    others = [kind for kind in parts if kind not in known]
    shown = ", ".join(f"{shortened(kind)}={_name_of(parts[kind])}" for kind in (*known, *others))
    return f"ClientQuotaEntity(entries={{{shown}}})"


def _name_of(name: str | None) -> str:
    return "null" if name is None else shortened(name)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


SERVED: Final = (
    ServedApi(ALTER_CLIENT_QUOTAS, alter_client_quotas, (Need(ALTER_CLUSTER_CONFIGS),)),
)
