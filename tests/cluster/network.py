"""A network of hosts without root: a network namespace for each, and a router between them.

One process, the anchor, holds the namespaces. It is the first process of a process namespace: when
it ends, the kernel kills every process of the network, whatever happened to its starter. Each host
is reached through the router, and a cut is a rule of the router that drops the packets of one
direction of one link. Connections live through a cut and go on when it is healed.

The router is also a host, `client`, for programs that only connect.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

CLIENT: Final = "client"
START_TIMEOUT_SECONDS: Final = 60
UNSHARE: Final = (
    *("unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork"),
    "--kill-child",
)
ANCHOR: Final = """
hosts=$1; shift
mount -t tmpfs tmpfs /run
mount --bind "$hosts" /etc/hosts
ip link set lo up
echo 1 > /proc/sys/net/ipv4/ip_forward
number=0
for name in "$@"; do
    number=$((number + 1))
    ip netns add "$name"
    ip link add "to-$name" type veth peer name eth0 netns "$name"
    ip address add "10.77.$number.1/24" dev "to-$name"
    ip link set "to-$name" up
    nsenter --net="/run/netns/$name" sh -ec "
        ip link set lo up
        ip address add 10.77.$number.2/24 dev eth0
        ip link set eth0 up
        ip route add default via 10.77.$number.1"
done
read -r line < /proc/self/stat
echo "$line"
# The end of the input, which is that of the starter, ends the network, unless it is to be kept.
read -r word
[ "$word" = keep ]
sleep infinity &
wait  # for it, and for every process that loses its parent
"""
# nsenter must end: it stops with a process that is paused, and would not go on with it.
IN_THE_BACKGROUND: Final = """
file=$1; shift
( read -r line < /proc/self/stat; echo "$line" > "$file"; exec "$@" ) &
"""


class NoNamespaces(Exception):
    """This machine does not let us make network namespaces."""


class Process:
    """A process by its pid and the time of its start, so that a later one is not taken for it.

    `line` is that of /proc/PID/stat when the process had a name without spaces.
    """

    def __init__(self, line: str) -> None:
        self.line = line.strip()
        fields = self.line.split()
        self.pid = int(fields[0])
        self._started = fields[21]

    @property
    def state(self) -> str | None:
        """R, S, T (paused) and so on; None if the process has ended."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        state, *fields = stat.rpartition(")")[2].split()
        return state if fields[18] == self._started and state not in "ZX" else None

    def send(self, number: signal.Signals) -> None:
        """Send a signal. Raises ProcessLookupError if the process has ended."""
        if self.state is None:
            raise ProcessLookupError(f"process {self.pid} has ended")
        os.kill(self.pid, number)


class Network:
    """The network that an anchor holds."""

    def __init__(self, anchor: Process, hosts: Sequence[str]) -> None:
        self.anchor = anchor
        self._addresses = {name: f"10.77.{1 + index}.2" for index, name in enumerate(hosts)}

    def command(self, host: str, words: Sequence[str]) -> list[str]:
        """Return the command that runs these words on a host."""
        inside = [f"--net=/run/netns/{host}"] if host != CLIENT else []
        enter = ["nsenter", "--target", str(self.anchor.pid), "--user", "--preserve-credentials"]
        enter += ["--net", "--mount", "--pid", f"--wd={os.getcwd()}"]
        return [*enter, *(["nsenter", *inside] if inside else []), *words]

    def background(self, host: str, file: Path, words: Sequence[str]) -> list[str]:
        """Return the command that starts these words on a host, and keeps the process in a file."""
        return self.command(host, ["sh", "-ec", IN_THE_BACKGROUND, "sh", str(file), *words])

    def cut(self, source: str, target: str) -> None:
        """Drop what `source` sends to `target`."""
        self._router("rule", "add", *self._link(source, target))

    def mend(self, source: str, target: str) -> None:
        """End the cut of what `source` sends to `target`."""
        self._router("rule", "delete", *self._link(source, target))

    def heal(self) -> None:
        """End all cuts."""
        for source, target in self.cuts():
            self.mend(source, target)

    def cuts(self) -> list[tuple[str, str]]:
        """Return the links of which one direction is cut, as source and target."""
        names = {address: name for name, address in self._addresses.items()}
        rules = [line.split() for line in self._router("rule", "list").splitlines()]
        return [(names[rule[2]], names[rule[4]]) for rule in rules if rule[-1] == "blackhole"]

    def _link(self, source: str, target: str) -> list[str]:
        return ["from", self._addresses[source], "to", self._addresses[target], "blackhole"]

    def _router(self, *words: str) -> str:
        finished = subprocess.run(
            self.command(CLIENT, ["ip", *words]), capture_output=True, text=True, check=True
        )
        return finished.stdout

    def close(self) -> None:
        """End the network and every process in it, and wait until the last has ended."""
        with contextlib.suppress(ProcessLookupError):  # it has ended, and its processes with it
            self.anchor.send(signal.SIGKILL)
        while self.anchor.state is not None:
            time.sleep(0.01)  # the kernel ends them; nothing can refuse


class Starter:
    """Starts an anchor, and holds the pipe whose end is that of the network."""

    def __init__(self, hosts_file: Path, hosts: Sequence[str]) -> None:
        addresses = [f"10.77.{1 + index}.2 {name}\n" for index, name in enumerate(hosts)]
        hosts_file.write_text("".join(["127.0.0.1 localhost\n", *addresses]))
        self._process = subprocess.Popen(
            [*UNSHARE, "sh", "-ec", ANCHOR, "sh", str(hosts_file), *hosts],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the starter
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            _, error = self._process.communicate(timeout=START_TIMEOUT_SECONDS)
            raise NoNamespaces(f"This machine forbids network namespaces: {error.strip()}.")
        self.network = Network(Process(line), hosts)

    def keep(self) -> None:
        """Let the network outlive this process."""
        assert self._process.stdin is not None
        self._process.stdin.write("keep\n")
        self._process.stdin.close()

    def close(self) -> None:
        """End the network and wait until its anchor has ended."""
        self.network.close()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
        self._process.wait()
