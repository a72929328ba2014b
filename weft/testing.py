"""Real nodes for tests: ``with weft.testing.cluster() as cluster: cluster.client()``.

Each node is a process of its own with its own data, which can be killed, stopped, paused and
started again; it comes back on the same ports. Nothing is left behind: not when a test fails, and
not when the test run itself is killed.

As a pytest fixture: ``from weft.testing import weft_cluster`` in ``conftest.py``, then name
``weft_cluster`` as an argument of a test.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from weft.errors import MissingExtra, Unavailable, UsageError

if TYPE_CHECKING:
    from weft.client.sync import Client

__all__ = ["Cluster", "NodeProcess", "cluster"]

START_S_MAX: Final = 30.0
#: On top of the node's own grace.
STOP_S_MAX: Final = 10.0
LOG_TAIL_LINES: Final = 30
_HOST: Final = "127.0.0.1"
_LOOK_S: Final = 0.01
_PORT_MIN: Final = 10_000
_TRIES_MAX: Final = 5

Setting = str | int | bool


@dataclass
class NodeProcess:
    """One node: where it keeps and says things, and, while it runs, its process."""

    data: Path
    log: Path
    #: gRPC and ZeroMQ; the same at every start.
    ports: tuple[int, int]
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def grpc(self) -> str:
        return f"{_HOST}:{self.ports[0]}"

    @property
    def zmq(self) -> str:
        return f"{_HOST}:{self.ports[1]}"

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-LOG_TAIL_LINES:])

    def signal(self, number: signal.Signals) -> None:
        self._running().send_signal(number)

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            raise UsageError("this node is not running; start it first")
        return self.process


class Cluster:
    """The nodes of one test. Made by `cluster`."""

    def __init__(self, data: Path, settings: dict[str, Setting]) -> None:
        self._settings = settings
        self._ends = ExitStack()
        # The kernel ends a node with the *thread* that started it, so one thread starts them all
        # and lives as long as the cluster.
        self._starter = ThreadPoolExecutor(1, "weft-testing")
        self._nodes = [NodeProcess(data / "node-0", data / "node-0.log", _free_ports())]

    @property
    def servers(self) -> list[str]:
        """The gRPC addresses: what `weft.connect` takes."""
        return [node.grpc for node in self._nodes]

    def client(self) -> Client:
        """A client of this cluster; it is closed with the cluster."""
        import weft

        return self._ends.enter_context(weft.connect(self.servers))

    def node(self, number: int = 0) -> NodeProcess:
        """A node's pid, data directory, log and addresses."""
        return self._nodes[number]

    def start(self, number: int = 0) -> None:
        """Starts a node on the ports it had before; returns when it serves."""
        node = self._nodes[number]
        if node.running:
            raise UsageError(f"node {number} runs already")
        self._starter.submit(_spawn, node, self._settings).result()
        _await_serving(node)

    def stop(self, number: int = 0) -> int:
        """Asks a node to stop (SIGTERM) and waits; returns its exit code."""
        node = self._nodes[number]
        node.signal(signal.SIGCONT)
        node.signal(signal.SIGTERM)
        assert node.process is not None
        grace_s = int(self._settings.get("grace_ms", 5000)) / 1000
        try:
            return node.process.wait(grace_s + STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill(number)
            raise Unavailable(
                f"node {number} did not stop in time and was killed; its log ends with\n"
                f"{node.log_tail()}"
            ) from None

    def kill(self, number: int = 0) -> None:
        """Ends a node without warning (SIGKILL), as a crash would."""
        node = self._nodes[number]
        node.signal(signal.SIGKILL)
        assert node.process is not None
        node.process.wait()

    def pause(self, number: int = 0) -> None:
        """Stops a node in its tracks (SIGSTOP): it holds its connections and says nothing."""
        self._nodes[number].signal(signal.SIGSTOP)

    def resume(self, number: int = 0) -> None:
        self._nodes[number].signal(signal.SIGCONT)

    def start_all(self) -> None:
        """The first start: a port that was taken in the meantime is replaced by another."""
        for number, node in enumerate(self._nodes):
            for attempt in range(_TRIES_MAX):
                try:
                    self.start(number)
                    break
                except Unavailable:
                    if attempt == _TRIES_MAX - 1 or "already in use" not in node.log_tail():
                        raise
                    node.ports = _free_ports()

    def close(self) -> None:
        try:
            self._ends.close()
        finally:
            for number, node in enumerate(self._nodes):
                if node.running:
                    self.kill(number)
            self._starter.shutdown()


@contextmanager
def cluster(
    nodes: int = 1,
    *,
    data: str | os.PathLike[str] | None = None,
    durability: str = "disk",
    **settings: Setting,
) -> Iterator[Cluster]:
    """Runs real nodes; `settings` are those of `weft serve`, as `grace_ms=100`.

    Without `data` the nodes' data is temporary. At the end nodes that still run are killed.
    """
    if nodes != 1:
        raise UsageError(f"clusters of {nodes} nodes come with a later version: use nodes=1")
    if importlib.util.find_spec("plyvel") is None:
        raise MissingExtra("a node needs the server extra: pip install 'weft[server]'")
    taken = {"data", "listen", "zmq_listen", "config"} & settings.keys()
    if taken:
        raise UsageError(f"{', '.join(sorted(taken))}: the cluster chooses these by itself")
    folder = Path(tempfile.mkdtemp(prefix="weft-")) if data is None else Path(data).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    made = Cluster(folder, {"durability": durability, **settings})
    try:
        made.start_all()
        yield made
    finally:
        made.close()
        if data is None:
            shutil.rmtree(folder)


def _spawn(node: NodeProcess, settings: dict[str, Setting]) -> None:
    flags = [f"--data={node.data}", f"--listen={node.grpc}", f"--zmq-listen={node.zmq}"]
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags.append(f"--{flag}={value}")
    # A killed node leaves its address behind, which would look like the new one's.
    if node.data.is_dir():
        _address_file(node).unlink(missing_ok=True)
    environment = {name: value for name, value in os.environ.items() if name[:5] != "WEFT_"}
    with node.log.open("ab") as log:
        node.process = subprocess.Popen(
            [sys.executable, "-m", "weft.tethered", str(os.getpid()), *flags],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )


def _await_serving(node: NodeProcess) -> None:
    assert node.process is not None
    end = time.monotonic() + START_S_MAX
    while not _serves(node):
        if node.process.poll() is not None:
            raise Unavailable(
                f"the node ended with exit code {node.process.returncode} instead of serving; its "
                f"log ends with\n{node.log_tail()}"
            )
        if time.monotonic() > end:
            node.process.kill()
            node.process.wait()
            raise Unavailable(
                f"the node did not serve within {START_S_MAX:.0f} s; its log ends with\n"
                f"{node.log_tail()}"
            )
        time.sleep(_LOOK_S)


def _serves(node: NodeProcess) -> bool:
    assert node.process is not None
    try:
        return bool(json.loads(_address_file(node).read_text())["pid"] == node.process.pid)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _address_file(node: NodeProcess) -> Path:
    return node.data / "address.json"


def _free_ports() -> tuple[int, int]:
    """Two ports that nobody uses, outside the range from which the system gives ports to clients.

    From inside it a client of a node that is down may be given the node's own port.
    """
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as limits:
        low = int(limits.read().split()[0])
    candidates = range(_PORT_MIN, low if low > 2 * _PORT_MIN else 1 << 16)
    found: list[int] = []
    for port in random.SystemRandom().sample(candidates, 1000):
        with socket.socket() as probe:
            if probe.connect_ex((_HOST, port)) != 0:
                found.append(port)
        if len(found) == 2:
            return found[0], found[1]
    raise Unavailable(f"no two free ports found on {_HOST}")


if importlib.util.find_spec("pytest") is not None:
    import pytest

    @pytest.fixture
    def weft_cluster() -> Iterator[Cluster]:
        """One node, for one test."""
        with cluster() as made:
            yield made

    __all__ += ["weft_cluster"]
