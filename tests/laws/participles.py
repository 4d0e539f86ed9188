"""The law of verbs: a function is not named by a participle alone.

What a thing is told of is `on_closed` or `note_fetched`. A call that waits is `wait_committed`. One
that changes something is an imperative, and a pure result is a noun or `to_batch`. `heard`,
`taken` and `settled` may be any of these, and send the reader into the code. A participle before a
noun (`flushed_offset`) is an adjective, and is a good name.
"""

import ast
from collections.abc import Iterator
from typing import Final

from tests.laws.source import Function


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


IRREGULAR: Final = _words(
    "became become begun bought brought broken built came caught chosen done drawn driven "
    "fallen felt forgotten fought found given gone got grown heard held hidden kept known laid "
    "led left lost made meant met paid overtaken ran said saw seen sent shown sold spent stood "
    "struck stuck taken taught thought thrown told took torn understood went woken won worn "
    "written"
)
NO_PARTICIPLES: Final = _words(
    "based bed embed exceed feed indeed need proceed red seed shed shield speed succeed"
)
PARTICLES: Final = _words(
    "again alike anew as at back below by first here in last of on out over to until up"
)
"""Words that may follow a participle without making a noun of it: `heard_of`, `made_anew`."""
REMAINING: Final = _words(
    "_aborted aborted acknowledged _adopted _advertised answered answered_at _arranged "
    "_assigned assigned awaited balanced _became begun begun_in blamed _bounded bounded "
    "_built _cancelled _checked checked _checkpointed _claimed committed compiled "
    "compressed _connected connected _connected_until _converted _copied counted _damaged "
    "damaged _decided _decoded _described described _deserialized drained "
    "drawn emptied _encoded encoded _ended ended _entered entered _failed failed_in "
    "_fenced _finished _found _grouped guarded _held held_back _imported "
    "inherited_last joined _kept _known known known_as _laid_out laid_out _led_by led_by "
    "led_by_first _left left _limited _listed locked _lost made_anew _moved _named named "
    "_narrowed _noted _opened opened outdated_in _packed _parsed parsed paused _pinned "
    "_planned preferred printed _printed_alike _quoted raised_at reached _received "
    "recompressed recovered _refused _renewed _repaired repeated replaced _replayed "
    "replayed_below restored _said serialized _settled settled shielded shortened _shown "
    "_snapshotted spelled_as _started started _stored _stored_in _taken_by taken_over "
    "_throttled timed_out _typed unacknowledged _unchanged uncommitted _undisturbed "
    "_unescaped unfinished unflushed _uninterrupted unpaused unsaved _unused unused_last "
    "_wanted _went_on"
)
"""The names that were there before the law. Rename one and take it out; add none."""


def is_participle(name: str) -> bool:
    """Return True for a participle, alone or with particles."""
    first, *rest = name.strip("_").split("_")
    regular = first.endswith("ed") and len(first) > 3 and first not in NO_PARTICIPLES
    return (regular or first in IRREGULAR) and PARTICLES.issuperset(rest)


def participles(module: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the names of functions that are participles, with a finding for each."""
    for node in ast.walk(tree):
        if isinstance(node, Function) and is_participle(node.name):
            yield (
                node.name,
                f"{module}:{node.name}: a participle says neither who acts nor what is returned. "
                "Write `on_x` or `note_x` for what it is told of, `wait_x` for a call that waits, "
                "a noun or `to_x` for a result.",
            )
