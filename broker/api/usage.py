"""The count of what a request uses of the quotas of its client."""

from collections.abc import Callable

from odradek.broker.api.context import RequestContext
from odradek.broker.quotas.entities import CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE
from odradek.protocol.errors import ErrorCode, KafkaError


def count_produced(context: RequestContext) -> None:
    """Count the request as produced bytes. If they are too many, its connection waits."""
    throttle = context.throttle
    throttle.use(
        PRODUCER_BYTE_RATE, context.principal.name, context.client_id, throttle.request_bytes
    )


def count_mutations(context: RequestContext, *, strict_from: int) -> Callable[[int], None]:
    """Return what counts the partitions that a request makes or deletes, before it does.

    From a version on, a client that is over its quota must wait before it changes anything: then it
    raises THROTTLING_QUOTA_EXCEEDED. Requests of older versions are served, and wait afterwards.
    """

    def count(partitions: int) -> None:
        accounts = context.throttle.accounts
        if accounts is None:
            return
        user, client_id = context.principal.name, context.client_id
        is_strict = context.api_version >= strict_from
        seconds = accounts.mutate(user, client_id, partitions, is_strict=is_strict)
        context.throttle.hold(CONTROLLER_MUTATION_RATE, seconds)
        if is_strict and seconds:
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                "The throttling quota has been exceeded. The client may change more topics in "
                f"{seconds:.1f} s (controller_mutation_rate).",
            )

    return count
