"""Real nodes for tests: ``with weft.testing.cluster(3) as cluster: cluster.client()``.

Each node is a separate process with a data directory. A test can kill, stop, pause and restart a
node; a restarted node has the same ports. Node 0 founds the cluster, the others join. No node is
left behind: not when a test fails, and not when the test run itself is killed.

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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from weft.errors import MissingExtra, Unavailable, UsageError
from weft.limits import check_range
from weft.node_process import GRACE_MS_DEFAULT, NodeProcess, Ports, Setting, free_ports

if TYPE_CHECKING:
    from weft.client.admin.cluster import ClusterCalls
    from weft.client.sync_client import Client
    from weft.dht.safety import Verdict

__all__ = ["Cluster", "NodeProcess", "cluster"]

#: More nodes than a machine that runs tests can carry.
NODES_MAX: Final = 32
SETTLE_S: Final = 120.0
_POLL_S: Final = 0.1
_TRIES_MAX: Final = 5


class Cluster:
    """The nodes of one test. Created by `cluster`.

        with weft.testing.cluster(3) as cluster:
            cluster.settled()
            cluster.kill(1)
            cluster.recovered()
            cluster.start(1)

    Nodes are numbered from 0. A method that needs a running node raises UsageError if it does not
    run; a node that does not start or stop in time raises Unavailable with the end of its log.
    """

    def __init__(self, data: Path, settings: dict[str, Setting]) -> None:
        self._data = data
        self._settings = settings
        self._ends = ExitStack()
        # The kernel ends a node with the *thread* that started the node, so one thread starts all
        # nodes and lives as long as the cluster.
        self._starter = ThreadPoolExecutor(1, "weft-testing")
        self._nodes: list[NodeProcess] = []
        #: Nodes that have left: not waited for, and not among `servers`.
        self._gone: set[int] = set()
        self._witnesses: set[int] = set()

    @property
    def servers(self) -> list[str]:
        """The gRPC addresses of all members: the argument of `weft.connect`."""
        return [self._nodes[number].grpc for number in self._members()]

    def client(self) -> Client:
        """A client of this cluster; closing the cluster closes the client."""
        import weft

        return self._ends.enter_context(weft.connect(self.servers))

    def node(self, number: int = 0) -> NodeProcess:
        """A node's pid, id, data directory, log and addresses."""
        return self._nodes[number]

    def start(self, number: int = 0) -> None:
        """Start a node on the same ports as before; returns when the node serves."""
        node = self._nodes[number]
        if node.running:
            raise UsageError(f"node {number} runs already")
        settings = dict(self._settings)
        if number in self._witnesses:
            settings["witness"] = True
        if number:
            settings.pop("learners", None)  # only the founding node takes this setting
        _ports_file(node.data).write_text(json.dumps(node.ports))
        self._starter.submit(node.spawn, settings, self._seeds(number)).result()
        node.await_serving()

    def stop(self, number: int = 0) -> int:
        """Stop a node (SIGTERM) and wait; returns the exit code."""
        node = self._nodes[number]
        node.ask_to_stop()
        return node.await_end(int(self._settings.get("grace_ms", GRACE_MS_DEFAULT)))

    def kill(self, number: int = 0) -> None:
        """End a node without warning (SIGKILL), as a crash would."""
        self._nodes[number].kill()

    def pause(self, number: int = 0) -> None:
        """Freeze a node (SIGSTOP): the node holds its connections and sends nothing."""
        self._nodes[number].pause()

    def resume(self, number: int = 0) -> None:
        """Continue a paused node (SIGCONT)."""
        self._nodes[number].resume()

    def add(self, *, witness: bool = False) -> int:
        """One more node joins; returns the node's number. Data follows later: see `settled`."""
        number = len(self._nodes)
        self._nodes.append(self._made(number))
        if witness:
            self._witnesses.add(number)
        self._first_start(number)
        return number

    def leave(self, number: int, timeout_s: float = SETTLE_S) -> None:
        """A node hands over all data and leaves the cluster; the node's process still runs.

        Raises Unavailable if the node has not left within `timeout_s` seconds."""
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
            time.sleep(_POLL_S)

    def settled(self, timeout_s: float = SETTLE_S) -> None:
        """Return when the cluster is settled: every member is alive, every partition is served and
        in its place (`weft cluster status` reports the same). Raises Unavailable with the reasons
        after `timeout_s` seconds. While a member is killed, stopped or paused the cluster is never
        settled: wait for `recovered`."""
        self._until("settled", lambda verdict: verdict.settled, timeout_s)

    def recovered(self, timeout_s: float = SETTLE_S) -> None:
        """Return when the running members have done all they can without the others: the intended
        number of running members serves every partition, and no partition is moving. Raises
        Unavailable with the reasons after `timeout_s` seconds."""
        expected = {self._nodes[number].id for number in self._members() if not self._up(number)}
        self._until(
            "recovered",
            lambda verdict: verdict.recovered and set(verdict.down) == expected,
            timeout_s,
        )

    def _until(self, what: str, holds: Callable[[Verdict], bool], timeout_s: float) -> None:
        from weft.client.admin.cluster_health import ClusterHealth

        end = time.monotonic() + timeout_s
        while True:
            try:
                verdict = ClusterHealth.of(self._calls().places()).verdict
                if holds(verdict):
                    return
                why = f"{verdict.state}: {'; '.join(verdict.reasons)}"
            except Unavailable as error:
                why = error.message
            if time.monotonic() > end:
                raise Unavailable(f"not {what} within {timeout_s:.0f} s: {why}")
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Close the clients and kill the nodes; the end of the `with` block does it."""
        try:
            self._ends.close()
        finally:
            for node in self._nodes:
                if node.running:
                    node.kill()
            self._starter.shutdown()

    # --- inside ---------------------------------------------------------------------------

    def _made(self, number: int) -> NodeProcess:
        """A node not started yet; a test may override this to place the node on another host."""
        data = self._data / f"node-{number}"
        return NodeProcess(data, data.with_suffix(".log"), _ports(data))

    def _members(self) -> list[int]:
        return [number for number in range(len(self._nodes)) if number not in self._gone]

    def _up(self, number: int) -> bool:
        return self._nodes[number].running and not self._nodes[number].paused

    def _seeds(self, number: int) -> list[str]:
        """The seed addresses of a joining node; empty for node 0, which founds the cluster."""
        others = [each for each in self._members() if each != number]
        up = [self._nodes[each].grpc for each in others if self._up(each)]
        return up or [self._nodes[0].grpc] if number else []

    def _calls(self) -> ClusterCalls:
        from weft.client.admin.cluster import ClusterCalls

        up = [self._nodes[number].grpc for number in self._members() if self._up(number)]
        return ClusterCalls(up or self.servers)

    def _first_start(self, number: int) -> None:
        """Start a new node; replace the ports if another process took one in the meantime."""
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
    """Run real nodes; `settings` are the settings of `weft serve`, such as `grace_ms=100`.

        with weft.testing.cluster(3, durability="os") as cluster, cluster.client() as client:
            client.create_queue("orders")

    Without `data` the nodes' data is temporary. With `witness` one more node joins that only
    votes. At the end, nodes that still run are killed. Raises MissingExtra without the server
    extra, InvalidArgument for more than 32 nodes, UsageError for a setting that the cluster chooses
    itself, and Unavailable if a node does not start.
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
    """The ports of an earlier run with the same data, where the other nodes expect the node."""
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
