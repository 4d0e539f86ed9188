"""The measures for the page of metrics, which are taken from before the first file is open."""

from dataclasses import replace

from odradek.broker.environment.env import Env
from odradek.broker.metrics.loop_busy import LoopBusy
from odradek.broker.metrics.readable_ends import ReadableEnds
from odradek.broker.metrics.timed_store import TimedStore
from odradek.broker.values.histogram import Histogram


class Probes:
    """The measures of one broker."""

    def __init__(self, env: Env) -> None:
        self.store = TimedStore(env.meta)
        self.env = replace(env, meta=self.store)
        """The same environment, whose calls are measured."""
        self.fsyncs = Histogram()
        self.loop_busy = LoopBusy()
        self.ends = ReadableEnds()
