"""Python's garbage collector is off while the broker starts, and then spares what was made."""

import subprocess
import sys

# In a process of its own: the collector of the tests stays as it is.
PROGRAM = """
import gc
from odradek.broker.environment import collector

with collector.paused():
    assert not gc.isenabled()
    collector.resume()  # as `serve` does when the state is loaded
    assert gc.isenabled()
    made = [[] for _ in range(1_000)]
    assert len(gc.get_objects()) > 1_000

assert gc.isenabled()
assert gc.get_threshold()[0] == collector.OBJECTS_PER_COLLECTION
assert gc.get_freeze_count() > 1_000
assert len(gc.get_objects()) < 1_000
"""

OLD = """
import gc, weakref
from odradek.broker.environment import collector


class Thing:
    pass


with collector.paused():
    pass
thing = Thing()
thing.itself = thing
seen = weakref.ref(thing)
gc.collect(1)  # it is old now
del thing
made = [[] for _ in range(40 * collector.OBJECTS_PER_COLLECTION)]
assert seen() is None
"""


def test_a_start_is_not_collected_and_what_it_made_is_never_looked_at() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)


def test_what_was_there_for_long_is_freed_soon_after_its_end() -> None:
    subprocess.run([sys.executable, "-c", OLD], check=True, timeout=60)
