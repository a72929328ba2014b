"""A node in a separate process on this machine: for tests, and for `weft cluster up`.

The caller starts, stops, kills and pauses the node; a restarted node has the same ports. The kernel
ends the node with the process that started the node (``weft.child_node``), regardless of how the
parent ends; a separate session keeps a Ctrl-C meant for the parent away from the node.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from weft.errors import Unavailable, UsageError

HOST: Final = "127.0.0.1"
START_S_MAX: Final = 60.0
#: In addition to the node's own grace period.
STOP_S_MAX: Final = 30.0
GRACE_MS_DEFAULT: Final = 5000
LOG_TAIL_LINES: Final = 30
_POLL_S: Final = 0.01
_PORT_MIN: Final = 10_000
#: Ports that a process tries first, one after the other: concurrent test runs try other ports, and
#: the port of a stopped node, which the node does not hold, is not soon given to another node.
_PORTS_OWN: Final = 512
_tried: Final = itertools.count(random.SystemRandom().randrange(_PORTS_OWN))

Setting = str | int | bool


class Ports(NamedTuple):
    """The ports of one node."""

    grpc: int
    zmq: int
    peer: int
    #: 0: any free port, another one at each start.
    http: int = 0


@dataclass
class NodeProcess:
    """One node: data directory, log, ports, and the process while the node runs."""

    data: Path
    log: Path
    #: The same at every start.
    ports: Ports
    host: str = HOST
    #: Command prefix for a node that runs elsewhere, such as in another network namespace.
    within: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    paused: bool = False

    @property
    def grpc(self) -> str:
        """HOST:PORT of the gRPC API."""
        return f"{self.host}:{self.ports.grpc}"

    @property
    def zmq(self) -> str:
        """HOST:PORT of the data path."""
        return f"{self.host}:{self.ports.zmq}"

    @property
    def peer(self) -> str:
        """HOST:PORT for the other nodes."""
        return f"{self.host}:{self.ports.peer}"

    @property
    def pid(self) -> int:
        """The process id. Raises UsageError if the node does not run."""
        return self._running().pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def made(self) -> bool:
        """True if the node has a data directory, and so was started before."""
        return (self.data / "node.json").exists()

    @property
    def id(self) -> str:
        """The node's id, available after the first start."""
        return str(json.loads((self.data / "node.json").read_text(encoding="utf-8"))["node"])

    def log_tail(self) -> str:
        """The last 30 lines of the node's log."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-LOG_TAIL_LINES:])

    # --- start, stop, kill, pause ----------------------------------------------------------

    def spawn(self, settings: Mapping[str, Setting], join: Sequence[str] = ()) -> None:
        """Start the process without waiting. The process ends with the *thread* that called."""
        if self.running:
            raise UsageError("this node runs already")
        own: dict[str, Setting] = {
            "data": str(self.data),
            "listen": self.grpc,
            "zmq_listen": self.zmq,
            "peer_listen": self.peer,
            "http_listen": f"{self.host}:{self.ports.http}",
        }
        if join:
            own["join"] = ",".join(join)
        # A killed node leaves an address file behind, which would look like the new process's.
        if self.data.is_dir():
            self._address_file.unlink(missing_ok=True)
        environment = {name: value for name, value in os.environ.items() if name[:5] != "WEFT_"}
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            # -P keeps modules in the current directory from being imported.
            self.process = subprocess.Popen(
                [*self.within, sys.executable, "-P", "-m", "weft.child_node", str(os.getpid()),
                 *_flags(own), *_flags(settings)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )  # fmt: skip
        self.paused = False

    def await_serving(self, seconds: float = START_S_MAX) -> None:
        """Return when the node serves; otherwise raise Unavailable with the end of the log."""
        assert self.process is not None, "spawn first"
        end = time.monotonic() + seconds
        while not self._serves(self.process.pid):
            if self.process.poll() is not None:
                raise Unavailable(
                    f"the node ended with exit code {self.process.returncode} instead of serving; "
                    f"its log ends with\n{self.log_tail()}"
                )
            if time.monotonic() > end:
                self.kill()
                raise Unavailable(
                    f"the node did not serve within {seconds:.0f} s; its log ends with\n"
                    f"{self.log_tail()}"
                )
            time.sleep(_POLL_S)

    def ask_to_stop(self) -> None:
        """Send SIGTERM; resume a paused node first."""
        self.resume()
        self.signal(signal.SIGTERM)

    def await_end(self, grace_ms: int = GRACE_MS_DEFAULT) -> int:
        """The exit code of a node asked to stop; kills a node that does not stop in time."""
        assert self.process is not None, "spawn first"
        try:
            return self.process.wait(grace_ms / 1000 + STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Unavailable(
                f"the node did not stop in time and was killed; its log ends with\n"
                f"{self.log_tail()}"
            ) from None

    def kill(self) -> None:
        """End the node without warning (SIGKILL), as a crash would."""
        process = self._running()
        process.kill()
        process.wait()

    def pause(self) -> None:
        """Freeze the node (SIGSTOP): the node holds its connections and sends nothing."""
        self.signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """Continue a paused node (SIGCONT)."""
        self.signal(signal.SIGCONT)
        self.paused = False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process. Raises UsageError if the node does not run."""
        self._running().send_signal(number)

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            raise UsageError("this node is not running; start it first")
        return self.process

    @property
    def _address_file(self) -> Path:
        return self.data / "address.json"

    def _serves(self, pid: int) -> bool:
        try:
            return bool(json.loads(self._address_file.read_text())["pid"] == pid)
        except (FileNotFoundError, NotADirectoryError):
            return False


def _flags(settings: Mapping[str, Setting]) -> list[str]:
    flags = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags.append(f"--{flag}={value}")
    return flags


def free_ports() -> Ports:
    """Free ports for one more node."""
    return Ports(*unused_ports(len(Ports._fields)))


def unused_ports(count: int) -> list[int]:
    """Unused ports, outside the range from which the system assigns ports to clients.

    From inside the range, the system may assign a client of a stopped node the node's own port.
    """
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as limits:
        low = int(limits.read().split()[0])
    every = range(_PORT_MIN, low if low > 2 * _PORT_MIN else 1 << 16)
    own = os.getpid() % (len(every) // _PORTS_OWN) * _PORTS_OWN
    found: list[int] = []
    for _ in range(_PORTS_OWN):
        port = every[own + next(_tried) % _PORTS_OWN]
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) != 0:
                found.append(port)
        if len(found) == count:
            return found
    raise Unavailable(f"no {count} free ports found on {HOST}")
