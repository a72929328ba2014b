"""Fabriq's experiment: hops per pop, and how evenly messages are spread (paper 4, 4.4).

Simulated servers with the real structures: the planner assigns partitions to primaries, messages
are hashed to partitions, each server keeps them in a ``MessageIdQueue``, ``OwnedLists`` has the
queue's metadata list, and one consumer at one server follows ``PopSearch``. Every message takes one
pop. A hop is a request that leaves the consumer's own server, to another server or to the list.

The corrected model of the paper's cost is ``1 - 1/s + (s - 1)/m`` for m messages on s servers: all
but one in s messages lie elsewhere, and each other server is found empty once.

``make hops`` prints the tables and draws the plots of docs/scaling.md.
"""

from __future__ import annotations

import math
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from weft.dht import view as views
from weft.dht.core import PACE, Core, encode_view
from weft.dht.messages import Ping, ReadyAnnouncement, encode
from weft.dht.planner import ReplicationFactor, plan
from weft.dht.ticker import INSTALL_BYTES_PER_TICK
from weft.dht.view import Member, View
from weft.ids import partition_of
from weft.persistence.memory import MemoryStore
from weft.pop_search import AskNode, PopSearch, SearchMemory, WaitAtMetadataList
from weft.proto import wire
from weft.server.core.owned_lists import AGAIN_US, OwnedLists
from weft.server.engine.message_id_queue import Handle, MessageIdQueue

_T = TypeVar("_T")

QUEUE: Final = "work"
#: Partitions per server: the default of 256 partitions gives as many to each of 64 servers.
PARTITIONS_PER_SERVER: Final = 4
#: Bytes that one node holds, for the hand-off time.
HELD_BYTES: Final = 100_000_000_000
PLOTS: Final = Path(__file__).parents[2] / "docs" / "plots"


def model(servers: int, messages: int) -> float:
    return 1 - 1 / servers + (servers - 1) / messages


def spread(servers: int, messages: int) -> float:
    """Approximate deviation of the fullest or emptiest server from the mean, for ideal hashing."""
    return math.sqrt(2 * math.log(servers) * servers / messages)


def planned(servers: int) -> View:
    """A view in which the planner's goal is reached."""
    names = [f"n{number:05}" for number in range(servers)]
    view = views.found(names[0], Member(names[0]), PARTITIONS_PER_SERVER * servers)
    address = "10.0.0.1:7700"
    members = {name: Member(address, "k" * 40, address, address) for name in names}
    view = View(1, view.voters, (), members, view.places)
    return View(2, view.voters, (), members, tuple(plan(view, ReplicationFactor())), 2)


class Server:
    def __init__(self, name: str) -> None:
        self.name = name
        self.ids = MessageIdQueue()
        self.ready = 0

    def push(self, number: int, partition: int) -> None:
        self.ids.add_fresh(0, Handle.pack(number + 1, partition, number + 1, 1, 100))
        self.ready += 1

    def pop(self) -> bool:
        found = self.ids.take() is not None
        self.ready -= found
        return found


def filled(view: View, messages: int) -> dict[str, Server]:
    servers = {name: Server(name) for name in view.members}
    for number in range(messages):
        partition = partition_of(7, number, view.catalogue)
        servers[view.places[partition].primary].push(number, partition)
    return servers


def hops(servers: dict[str, Server], local: str) -> float:
    """Mean hops per pop of one consumer that empties the queue."""
    lists, search_memory, names, now = OwnedLists(), SearchMemory(), list(servers), 1
    for number, server in enumerate(servers.values(), 1):
        lists.record(server.name, 1, number, {QUEUE: server.ready}, now)
    pops = total = 0
    entropy = 0x9E3779B97F4A7C15
    while True:
        entropy = entropy * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        search = PopSearch(names, local, search_memory, entropy)
        while True:
            step = search.next()
            if isinstance(step, WaitAtMetadataList):
                return total / pops  # the last search found nothing and is not counted
            if not isinstance(step, AskNode):
                search.use_list([name for name, _ in lists.nodes(QUEUE, now)])
                continue
            server = servers[step.node]
            if server.pop():
                search.found(server.name, server.ready)
                if not server.ready:  # the list's owner learns that the server is empty
                    lists.record(server.name, 2, pops, {QUEUE: 0}, now)
                break
            search.empty(server.name)
        pops += 1
        total += search.hops


class Cost(NamedTuple):
    """Cost of a view with this many nodes, for one node."""

    nodes: int
    plan_s: float  # from nothing: all partitions are on one node
    again_s: float  # goal already reached: every node plans after each change of the view
    join_s: float  # one more node has joined
    view_bytes: int
    learn_s: float  # to adopt an encoded view
    core_bytes: int


def cost(nodes: int) -> Cost:
    view, plan_s = _timed(lambda: planned(nodes))
    _, again_s = _timed(lambda: plan(view, ReplicationFactor()))
    joined = views.join("late", Member("10.0.0.2:7700"))(view)
    _, join_s = _timed(lambda: plan(joined, ReplicationFactor()))
    _, learn_s = _timed(lambda: _learned(view))
    tracemalloc.start()
    core = _learned(view)
    core_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert core.view is view
    return Cost(nodes, plan_s, again_s, join_s, len(encode_view(view)), learn_s, core_bytes)


def _learned(view: View) -> Core:
    name = next(iter(view.members))
    core = Core(name, MemoryStore(), partitions=view.catalogue, entropy=lambda below: 0)
    core.recover(0)
    core.begin(1)
    core.learn(view)
    core.end()
    return core


def _timed(work: Callable[[], _T]) -> tuple[_T, float]:
    start = time.perf_counter()
    made = work()
    return made, time.perf_counter() - start


class Traffic(NamedTuple):
    """Background traffic between idle nodes, computed from the named intervals and real frames."""

    nodes: int
    pings_per_s: float  # sent by one node; it receives as many
    ping_bits_per_s: float  # of one node, both ways, without the transport's own bytes
    change_bytes: int  # sent by the proposer for one change of the view
    words_per_s: float  # received by the list's owner of a queue with messages on every node
    word_bits_per_s: float
    list_bytes: int  # size of one metadata list
    hand_off_s: float  # to copy the data of a lost node, at the rate left for it


def traffic(nodes: int, view_bytes: int) -> Traffic:
    second = 1_000_000
    others = nodes - 1
    pings = others * second / PACE.ping
    ping = len(encode(Ping(1_000_000)))
    words = others * second / AGAIN_US
    word = len(encode(ReadyAnnouncement(10, 1_000_000, {QUEUE: 1000})))
    names = len(wire.encode(wire.Nodes([f"{number:032x}" for number in range(nodes)])))
    rate = others * INSTALL_BYTES_PER_TICK * second / PACE.again
    return Traffic(
        nodes, pings, 2 * 8 * pings * ping, others * view_bytes, words, 8 * words * word, names,
        HELD_BYTES / rate,
    )  # fmt: skip


class Row(NamedTuple):
    servers: int
    messages: int
    measured: float
    model: float
    off: float  # largest deviation of a server's message count from the mean


def measure(servers: int, messages: int) -> tuple[Row, list[int]]:
    view = planned(servers)
    full = filled(view, messages)
    counts = [server.ready for server in full.values()]
    mean = messages / servers
    off = max(abs(count - mean) for count in counts) / mean
    local = next(iter(full))
    return Row(servers, messages, hops(full, local), model(servers, messages), off), counts


def main() -> int:
    rows: list[Row] = []
    counts: dict[int, list[int]] = {}
    heads = ("servers", "messages", "hops", "model", "off by", "fullest", "bound")
    print(" ".join(f"{name:>8}" for name in heads))
    for servers in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024):
        row, counts[servers] = measure(servers, 1000 * servers if servers <= 256 else 250 * servers)
        rows.append(row)
        bound = 1.75 * spread(row.servers, row.messages)
        print(
            f"{row.servers:>8} {row.messages:>8} {row.measured:>8.4f} {row.model:>8.4f} "
            f"{row.measured / row.model - 1:>+8.2%} {row.off:>8.1%} {bound:>8.1%}", flush=True,
        )  # fmt: skip
    costs = [cost(nodes) for nodes in (16, 64, 256, 1024)]
    heads = ("nodes", "plan s", "again ms", "join ms", "view kB", "learn ms", "core kB")
    print("\n" + " ".join(f"{name:>8}" for name in heads))
    for each in costs:
        print(
            f"{each.nodes:>8} {each.plan_s:>8.2f} {each.again_s * 1000:>8.1f} "
            f"{each.join_s * 1000:>8.1f} {each.view_bytes / 1000:>8.0f} "
            f"{each.learn_s * 1000:>8.1f} {each.core_bytes / 1000:>8.0f}", flush=True,
        )  # fmt: skip
    per_node = costs[-1].view_bytes / costs[-1].nodes
    traffic_heads = (
        "nodes", "pings/s", "kbit/s", "view kB", "change MB", "words/s", "kbit/s", "list kB",
        "hand-off s",
    )  # fmt: skip
    print("\n" + " ".join(f"{name:>9}" for name in traffic_heads))
    for nodes in (100, 1_000, 10_000):
        said = traffic(nodes, int(per_node * nodes))
        print(
            f"{nodes:>9} {said.pings_per_s:>9.0f} {said.ping_bits_per_s / 1000:>9.0f} "
            f"{per_node * nodes / 1000:>9.0f} {said.change_bytes / 1e6:>9.1f} "
            f"{said.words_per_s:>9.0f} {said.word_bits_per_s / 1000:>9.0f} "
            f"{said.list_bytes / 1000:>9.0f} {said.hand_off_s:>9.1f}", flush=True,
        )  # fmt: skip
    draw(rows, counts)
    return 0


def draw(rows: list[Row], counts: dict[int, list[int]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    PLOTS.mkdir(exist_ok=True)
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    servers = [row.servers for row in rows]
    axes.semilogx(servers, [row.model for row in rows], "-", base=2, label="corrected model")
    axes.semilogx(servers, [row.measured for row in rows], "o", base=2, label="measured")
    axes.set(xlabel="servers", ylabel="hops per pop", title="Hops of one consumer", ylim=(0, 1.2))
    axes.legend()
    figure.savefig(PLOTS / "hops.png", dpi=110, metadata={"Software": None})
    figure, both = pyplot.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for axes, size in zip(both, (64, 1024), strict=True):
        mean = sum(counts[size]) / size
        axes.bar(range(size), sorted(counts[size]), width=1.0)
        axes.axhline(mean, color="black", linewidth=1)
        axes.set(xlabel="servers, sorted", ylabel="messages", title=f"{size} servers")
    figure.savefig(PLOTS / "balance.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    sys.exit(main())
