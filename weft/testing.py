"""Real nodes for tests: ``with weft.testing.cluster(3) as cluster: cluster.client()``.

Each node is a process of its own with its own data, which can be killed, stopped, paused and
started again; it comes back on the same ports. Node 0 founds the cluster, the others join it.
Nothing is left behind: not when a test fails, and not when the test run itself is killed.

As a pytest fixture: ``from weft.testing import weft_cluster`` in ``conftest.py``, then name
``weft_cluster`` as an argument of a test.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from weft.errors import MissingExtra, Unavailable, UsageError
from weft.limits import check_range
from weft.node_process import GRACE_MS_DEFAULT, NodeProcess, Ports, Setting, free_ports

if TYPE_CHECKING:
    from weft.client.cluster import ClusterCalls
    from weft.client.sync import Client

__all__ = ["Cluster", "NodeProcess", "cluster"]

#: More than a machine that runs tests can carry.
NODES_MAX: Final = 32
SETTLE_S: Final = 120.0
_LOOK_S: Final = 0.1
_TRIES_MAX: Final = 5


class Cluster:
    """The nodes of one test. Made by `cluster`."""

    def __init__(self, data: Path, settings: dict[str, Setting]) -> None:
        self._data = data
        self._settings = settings
        self._ends = ExitStack()
        # The kernel ends a node with the *thread* that started it, so one thread starts them all
        # and lives as long as the cluster.
        self._starter = ThreadPoolExecutor(1, "weft-testing")
        self._nodes: list[NodeProcess] = []
        #: Those that have left: they are not waited for, nor told to clients.
        self._gone: set[int] = set()
        self._witnesses: set[int] = set()

    @property
    def servers(self) -> list[str]:
        """The gRPC addresses of all members: what `weft.connect` takes."""
        return [self._nodes[number].grpc for number in self._members()]

    def client(self) -> Client:
        """A client of this cluster; it is closed with the cluster."""
        import weft

        return self._ends.enter_context(weft.connect(self.servers))

    def node(self, number: int = 0) -> NodeProcess:
        """A node's pid, id, data directory, log and addresses."""
        return self._nodes[number]

    def start(self, number: int = 0) -> None:
        """Starts a node on the ports it had before; returns when it serves."""
        node = self._nodes[number]
        if node.running:
            raise UsageError(f"node {number} runs already")
        settings = dict(self._settings)
        if number in self._witnesses:
            settings["witness"] = True
        if number:
            settings.pop("learners", None)  # the first one founds the cluster
        _ports_file(node.data).write_text(json.dumps(node.ports))
        self._starter.submit(node.spawn, settings, self._seeds(number)).result()
        node.await_serving()

    def stop(self, number: int = 0) -> int:
        """Asks a node to stop (SIGTERM) and waits; returns its exit code."""
        node = self._nodes[number]
        node.ask_to_stop()
        return node.await_end(int(self._settings.get("grace_ms", GRACE_MS_DEFAULT)))

    def kill(self, number: int = 0) -> None:
        """Ends a node without warning (SIGKILL), as a crash would."""
        self._nodes[number].kill()

    def pause(self, number: int = 0) -> None:
        """Stops a node in its tracks (SIGSTOP): it holds its connections and says nothing."""
        self._nodes[number].pause()

    def resume(self, number: int = 0) -> None:
        self._nodes[number].resume()

    def add(self, *, witness: bool = False) -> int:
        """One more node joins; gives its number. Its data follows: see `settled`."""
        number = len(self._nodes)
        self._nodes.append(self._made(number))
        if witness:
            self._witnesses.add(number)
        self._first_start(number)
        return number

    def leave(self, number: int, timeout_s: float = SETTLE_S) -> None:
        """A node hands over what it holds and is no member any more; its process still runs."""
        node = self._nodes[number]
        self._gone.add(number)
        calls = self._calls()
        asked = False
        end = time.monotonic() + timeout_s
        while any(member.id == node.id for member in calls.places().nodes):
            if not asked:
                calls.leave(node.id)
                asked = True
            if time.monotonic() > end:
                raise Unavailable(f"node {number} has not left within {timeout_s:.0f} s")
            time.sleep(_LOOK_S)

    def settled(self, timeout_s: float = SETTLE_S) -> None:
        """Returns when every partition is served by as many nodes in step as there should be, and
        every member that runs is known to be alive."""
        from weft.client.standing import Standing

        expected = {self._nodes[number].id for number in self._members() if self._up(number)}
        end = time.monotonic() + timeout_s
        while True:
            try:
                standing = Standing.of(self._calls().places())
                troubles = standing.troubles
                alive = {each.node.id for each in standing.nodes if each.node.alive}
                if alive != expected:
                    troubles.append(f"alive {sorted(alive)}, expected {sorted(expected)}")
            except Unavailable as error:
                troubles = [error.message]
            if not troubles:
                return
            if time.monotonic() > end:
                raise Unavailable(f"not settled within {timeout_s:.0f} s: {'; '.join(troubles)}")
            time.sleep(_LOOK_S)

    def close(self) -> None:
        try:
            self._ends.close()
        finally:
            for node in self._nodes:
                if node.running:
                    node.kill()
            self._starter.shutdown()

    # --- inside ---------------------------------------------------------------------------

    def _made(self, number: int) -> NodeProcess:
        """A node that is yet to start; a test may put it elsewhere, as on another host."""
        data = self._data / f"node-{number}"
        return NodeProcess(data, data.with_suffix(".log"), _ports(data))

    def _members(self) -> list[int]:
        return [number for number in range(len(self._nodes)) if number not in self._gone]

    def _up(self, number: int) -> bool:
        return self._nodes[number].running and not self._nodes[number].paused

    def _seeds(self, number: int) -> list[str]:
        """Whom a node asks to be let in; the first one founds the cluster."""
        others = [each for each in self._members() if each != number]
        up = [self._nodes[each].grpc for each in others if self._up(each)]
        return up or [self._nodes[0].grpc] if number else []

    def _calls(self) -> ClusterCalls:
        from weft.client.cluster import ClusterCalls

        up = [self._nodes[number].grpc for number in self._members() if self._up(number)]
        return ClusterCalls(up or self.servers)

    def _first_start(self, number: int) -> None:
        """A port that was taken in the meantime is replaced by another."""
        node = self._nodes[number]
        for attempt in range(_TRIES_MAX):
            try:
                self.start(number)
                return
            except Unavailable:
                if attempt == _TRIES_MAX - 1 or "already in use" not in node.log_tail():
                    raise
                node.ports = free_ports()


@contextmanager
def cluster(
    nodes: int = 1,
    *,
    data: str | os.PathLike[str] | None = None,
    durability: str = "disk",
    witness: bool = False,
    **settings: Setting,
) -> Iterator[Cluster]:
    """Runs real nodes; `settings` are those of `weft serve`, as `grace_ms=100`.

    Without `data` the nodes' data is temporary. With `witness` one more node joins that only
    votes. At the end nodes that still run are killed.
    """
    if importlib.util.find_spec("plyvel") is None:
        raise MissingExtra("a node needs the server extra: pip install 'weft[server]'")
    check_range("nodes", nodes, 1, NODES_MAX)
    own = {"data", "listen", "zmq_listen", "http_listen", "peer_listen", "join", "config"}
    taken = own & settings.keys()
    if taken:
        raise UsageError(f"{', '.join(sorted(taken))}: the cluster chooses these by itself")
    folder = Path(tempfile.mkdtemp(prefix="weft-")) if data is None else Path(data).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    made = Cluster(folder, {"durability": durability, **settings})
    try:
        for _ in range(nodes):
            made.add()
        if witness:
            made.add(witness=True)
        yield made
    finally:
        made.close()
        if data is None:
            shutil.rmtree(folder)


def _ports(data: Path) -> Ports:
    """Those that the node had when its data was used before: the others look for it there."""
    file = _ports_file(data)
    return Ports(*json.loads(file.read_text())) if file.exists() else free_ports()


def _ports_file(data: Path) -> Path:
    return data.with_suffix(".ports")


if importlib.util.find_spec("pytest") is not None:
    import pytest

    @pytest.fixture
    def weft_cluster() -> Iterator[Cluster]:
        """One node, for one test."""
        with cluster() as made:
            yield made

    __all__ += ["weft_cluster"]
