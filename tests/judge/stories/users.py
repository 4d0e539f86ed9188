"""Changes of SCRAM's users that are refused, and which of several reasons is returned."""

from dataclasses import replace
from typing import Any, Final

from odradek.protocol.apis.credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tests.judge.broker import Broker
from tests.judge.names import code_name
from tests.judge.story import variants

SHA_256, SHA_512 = 1, 2
ITERATIONS: Final = 4096


def _gone(mechanism: int = SHA_256, name: str = "u") -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def _made(
    mechanism: int = SHA_256, iterations: int = ITERATIONS, name: str = "u"
) -> ScramCredentialUpsertion:
    size = 64 if mechanism == SHA_512 else 32
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=bytes(size),
    )


CHANGES: Final[dict[str, tuple[Any, ...]]] = {
    "nothing": (),
    "no such user": (_gone(),),
    "no such mechanism": (_gone(3), _made(-1, name="v")),
    "too few iterations": (_made(iterations=ITERATIONS - 1),),
    "most iterations": (_made(iterations=16_384), _gone(name="v")),
    "too many iterations": (_made(iterations=16_385),),
    "no name": (_made(name=""), _made(name="v")),
    "no name twice": (_gone(name=""), _made(name="")),
    "made twice": (_made(), _made(SHA_512)),
    "made thrice": (_made(), _made(), _made()),
    "made, and made badly": (_made(), _made(iterations=1)),
    "made badly, and made": (_made(iterations=1), _made()),
    "made badly, and of no mechanism": (_made(iterations=1), _made(0)),
    "deleted twice, not there": (_gone(), _gone()),
    "deleted, of no mechanism, and made": (_gone(0), _made()),
    "deleted, not there, and made": (_gone(), _made()),
    "deleted, not there, and made badly": (_gone(), _made(0)),
    "twice, and another": (_made(), _made(), _made(name="v")),
}


@variants(changes=CHANGES)
def story_refused(broker: Broker, changes: str) -> None:
    _change(broker, changes, CHANGES[changes])


@variants(changes=("deleted twice", "deleted and made", "deleted and made badly"))
def story_of_one_who_is_there(broker: Broker, changes: str) -> None:
    _change(broker, "made", (_made(),))
    second = {"deleted twice": _gone(), "deleted and made": _made()}.get(changes, _made(0))
    _change(broker, changes, (_gone(), second))
    _change(broker, "deleted", (_gone(),))


def _change(broker: Broker, what: str, changes: tuple[Any, ...]) -> None:
    def own(change: Any) -> Any:
        name = broker.names.on_wire(change.name) if change.name else ""
        return replace(change, name=name)

    wanted = [own(change) for change in changes]
    request = AlterUserScramCredentialsRequest(
        deletions=tuple(each for each in wanted if isinstance(each, ScramCredentialDeletion)),
        upsertions=tuple(each for each in wanted if isinstance(each, ScramCredentialUpsertion)),
    )

    def answer(response: Any) -> str:
        said = sorted(
            f"{broker.names.describe(each.user)} {code_name(each.error_code)} "
            f"{each.error_message!r}"
            for each in response.results
        )
        return "; ".join(said)

    broker.ask(what, ALTER_USER_SCRAM_CREDENTIALS, 0, request, answer)
