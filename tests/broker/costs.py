"""What a broker's process has cost so far, as the kernel says."""

import os
from pathlib import Path

from odradek.broker.testing import RunningBroker


def resident_kib(broker: RunningBroker) -> int:
    """Memory that is in use."""
    for line in Path(f"/proc/{broker.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def processor_seconds(broker: RunningBroker) -> float:
    """Time that it computed: others who are busy on this machine, and its disk, do not count."""
    behind_the_name = Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2]
    user_ticks, system_ticks = behind_the_name.split()[11:13]
    return (int(user_ticks) + int(system_ticks)) / os.sysconf("SC_CLK_TCK")
