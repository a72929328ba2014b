"""`weft cluster up`: a cluster of real node processes on this machine, for experiments.

Every node is a process with its own folder, log and ports; the first node founds the cluster, the
others join. A second `up` on the same folder starts the same nodes on the same ports. A node that
exits is not restarted, so that a user can kill one and watch the failover. A node that has left the
cluster is not started: the members' view shows which nodes left, and `cluster.json` records them.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from weft.client.admin.cluster import ClusterCalls
from weft.client.cli import extras, output
from weft.client.cli.failure import CommandFailed
from weft.client.cli.options import wants_json
from weft.errors import MissingExtra, UsageError, WeftError
from weft.node_process import NodeProcess, Ports
from weft.shell_command import typed_command

NODES_DEFAULT: Final = 3
#: Upper bound for one machine.
NODES_MAX: Final = 16
BASE_PORT_DEFAULT: Final = 7700
#: Distance between the base ports of two nodes.
STEP: Final = 10
#: Offset of the witness's base port from the first node's.
WITNESS_AFTER: Final = 5
#: Offsets from a node's gRPC port.
ZMQ_AFTER, HTTP_AFTER, PEER_AFTER = 1, 2, 3
BASE_PORT_MAX: Final = 65_535 - NODES_MAX * STEP
#: Start timeout in seconds. A joining node itself waits up to 60 s for a member to admit it.
START_S: Final = 90.0
_POLL_S: Final = 0.2
_WITNESS: Final = "witness"


@dataclass(frozen=True)
class ClusterPlan:
    """The content of `cluster.json`, from which the next `up` starts the same cluster."""

    nodes: int
    base_port: int
    witness: bool
    #: Ids of nodes that have left the cluster for good.
    left: list[str] = field(default_factory=list)


@click.command
@click.option(
    "-n", "--nodes", type=click.IntRange(1, NODES_MAX),
    help=f"Number of data nodes.  [default: as before, or {NODES_DEFAULT}]",
)  # fmt: skip
@click.option(
    "--data", "folder", type=click.Path(path_type=Path), default=".weft-cluster",
    show_default=True, help="Folder for data and logs; kept after the command ends.",
)  # fmt: skip
@click.option(
    "--base-port", type=click.IntRange(1024, BASE_PORT_MAX),
    help=f"gRPC port of the first node; each further node adds {STEP}.  "
    f"[default: as before, or {BASE_PORT_DEFAULT}]",
)  # fmt: skip
@click.option("--witness", is_flag=True, help="Also start a witness: it votes and holds no data.")
@click.option(
    "--durability", type=click.Choice(["disk", "os"]), default="disk", show_default=True,
    help="Acknowledge a push after fsync (disk), or from the page cache (os).",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print output and errors as JSON.")
@click.pass_context
def up(
    context: click.Context,
    nodes: int | None,
    folder: Path,
    base_port: int | None,
    witness: bool,
    durability: str,
    as_json: bool,
) -> None:
    """Run a cluster on this machine until Ctrl-C.

    The next run with the same --data starts the same nodes on the same ports.

    \b
    Examples:
      weft cluster up
      weft cluster up -n 5 --data /var/tmp/weft
      weft cluster up -n 2 --witness
    """
    _refuse_client_options(context)
    absent = extras.missing("server")
    if absent:
        raise MissingExtra(f"a node needs {', '.join(absent)}: pip install 'weft[server]'")
    folder = folder.absolute()
    plan = remember(folder, nodes, base_port, witness=witness)
    processes = [node for node in layout(folder, plan) if not has_left(node, plan)]
    _check_ports(processes)
    with _interruptible():
        try:
            left = _start(processes, durability)
            if left:
                _save(folder, replace(plan, left=[*plan.left, *(node.id for node in left)]))
                processes = [node for node in processes if node not in left]
            if not processes:
                raise CommandFailed
            if as_json or wants_json():
                output.as_json(_as_json(folder, processes))
            else:
                _greet(folder, processes)
            _watch(processes)
        except KeyboardInterrupt:
            click.echo("stopping the nodes; press Ctrl-C again to kill them", err=True)
        finally:
            _stop(processes)


def remember(
    folder: Path, nodes: int | None, base_port: int | None, *, witness: bool
) -> ClusterPlan:
    """Merges the options with the saved plan, options first, and saves the result."""
    file = folder / "cluster.json"
    before = ClusterPlan(**json.loads(file.read_text(encoding="utf-8"))) if file.exists() else None
    made = before is not None and any(node.made for node in layout(folder, before))
    if before is not None and made and base_port not in (None, before.base_port):
        raise click.UsageError(
            f"{folder} has a cluster with --base-port {before.base_port}, and its nodes expect each"
            " other on these ports. Leave --base-port out, or choose another --data."
        )
    plan = ClusterPlan(
        nodes or (before.nodes if before else NODES_DEFAULT),
        base_port or (before.base_port if before else BASE_PORT_DEFAULT),
        witness or (before is not None and before.witness),
        before.left if before else [],
    )
    _save(folder, plan)
    return plan


def _check_ports(processes: list[NodeProcess]) -> None:
    """Raises UsageError before any node starts if another program uses one of the ports."""
    for node in processes:
        for port in node.ports:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the node itself
                try:
                    probe.bind((node.host, port))
                except OSError as error:
                    # The nodes of an existing cluster expect each other on their ports.
                    made = any(each.made for each in processes)
                    raise UsageError(
                        f"{node.data.name} cannot listen on {node.host}:{port}: {error.strerror}. "
                        "Stop the program that uses the port (perhaps another node)"
                        + ("" if made else ", or pass other ports with --base-port")
                    ) from None


def has_left(node: NodeProcess, plan: ClusterPlan) -> bool:
    """True if the data directory belongs to a member that left; without data the node is new."""
    return node.made and node.id in plan.left


def _save(folder: Path, plan: ClusterPlan) -> None:
    file = folder / "cluster.json"
    folder.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".tmp")
    draft.write_text(json.dumps(asdict(plan)) + "\n", encoding="utf-8")
    draft.replace(file)


def layout(folder: Path, plan: ClusterPlan) -> list[NodeProcess]:
    """The nodes in the order of their first start."""
    ports = {f"node-{number}": plan.base_port + STEP * number for number in range(plan.nodes)}
    if plan.witness:
        ports[_WITNESS] = plan.base_port + WITNESS_AFTER
    return [
        NodeProcess(
            folder / name,
            folder / f"{name}.log",
            Ports(port, port + ZMQ_AFTER, port + PEER_AFTER, port + HTTP_AFTER),
        )
        for name, port in ports.items()
    ]


def _start(processes: list[NodeProcess], durability: str) -> list[NodeProcess]:
    """Starts returning members together, because they need a quorum, then new nodes one by one.

    Stops and returns the nodes that are no longer members.
    """
    back = [node for node in processes if node.made]
    failures: dict[str, WeftError] = {}
    for node in back:
        _spawn(node, processes, durability)
    for node in back:
        try:
            _await(node)
        except WeftError as error:
            failures[node.id] = error
    members = _members([node for node in back if node.running])
    left = [node for node in back if members and node.id not in members]
    for node in left:
        click.echo(
            f"{node.data.name} ({node.id}) has left the cluster and is not started. To start a new "
            f"node in its place, remove {node.data} and run the command again",
            err=True,
        )
        if node.running:
            node.ask_to_stop()
            node.await_end()
    for node in back:
        if node not in left and node.id in failures:
            raise failures[node.id]
    members_now = [node for node in processes if node not in left]
    for node in members_now:
        if node not in back:
            _spawn(node, members_now, durability)
            _await(node)
    return left


def _members(serving: list[NodeProcess]) -> set[str]:
    """Member ids in the newest view of the given nodes.

    The newest view decides, because a node that left may still have an old view with itself in it.
    """
    newest, members = -1, set[str]()
    for node in serving:
        try:
            places = ClusterCalls([node.grpc]).places()
        except WeftError:
            continue  # The node has no view, or has just exited.
        if places.version > newest:
            newest, members = places.version, {each.id for each in places.nodes}
    return members


def _spawn(node: NodeProcess, processes: list[NodeProcess], durability: str) -> None:
    seeds = [each.grpc for each in processes if each is not node and each.made]
    settings: dict[str, str | int | bool] = {"durability": durability}
    if node.data.name == _WITNESS:
        settings["witness"] = True
    node.spawn(settings, seeds)  # A node without seeds founds the cluster.


def _await(node: NodeProcess) -> None:
    try:
        node.await_serving(START_S)
    except WeftError as error:
        raise type(error)(f"{node.data.name}: {error.message}") from None


def _greet(folder: Path, processes: list[NodeProcess]) -> None:
    output.table(
        ("node", "id", "gRPC", "ZeroMQ", "nodes", "pid"),
        [
            (node.data.name, node.id, node.grpc, node.zmq, node.peer, str(node.pid))
            for node in processes
        ],
        right=("pid",),
    )
    weft = f"{typed_command(sys.argv[0])} -s {processes[0].grpc}"
    click.echo(f"""
Data and logs: {folder}
Try in another terminal:
  {weft} cluster status
  {weft} queue create hello
Stop with Ctrl-C; the next `weft cluster up` starts the same cluster again.""")


def _as_json(folder: Path, processes: list[NodeProcess]) -> dict[str, Any]:
    return {
        "data": str(folder),
        "servers": ",".join(node.grpc for node in processes),
        "nodes": [
            {
                "name": node.data.name,
                "id": node.id,
                "grpc": node.grpc,
                "zmq": node.zmq,
                "peer": node.peer,
                "pid": node.pid,
                "log": str(node.log),
            }
            for node in processes
        ],
    }


def _watch(processes: list[NodeProcess]) -> None:
    """Reports each node that exits, until Ctrl-C; raises CommandFailed when no node is left."""
    running = list(processes)
    while running:
        for node in [node for node in running if not node.running]:
            running.remove(node)
            assert node.process is not None
            code = node.process.returncode
            click.echo(f"{node.data.name} exited with code {code}; see {node.log}", err=True)
        time.sleep(_POLL_S)
    raise CommandFailed


def _stop(processes: list[NodeProcess]) -> None:
    running = [node for node in processes if node.running]
    try:
        for node in running:
            node.ask_to_stop()
        for node in running:
            node.await_end()
    except KeyboardInterrupt:
        for node in running:
            if node.running:
                node.kill()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Handles SIGTERM like Ctrl-C: shells and supervisors stop background jobs with SIGTERM."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _refuse_client_options(context: click.Context) -> None:
    root = context.find_root()
    for name in ("servers", "timeout_ms"):
        if root.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = "--" + name.replace("_", "-")
            raise click.UsageError(
                f"{flag} is an option of clients: `weft cluster up` runs nodes. Leave {flag} out.",
                context,
            )
