"""The times of fsyncs, for the metrics."""

import trio

from odradek.broker.environment.env import FsyncEnded
from odradek.broker.values.histogram import Histogram


def to_timed(fsyncs: Histogram | None, done: FsyncEnded) -> FsyncEnded:
    """Return what is called at the end of an fsync that begins now: `done`, and a note of its time.

    Without `fsyncs` it is `done` itself.
    """
    if fsyncs is None:
        return done
    since = trio.current_time()

    def ended(error: BaseException | None) -> None:
        fsyncs.note(trio.current_time() - since)
        done(error)

    return ended
