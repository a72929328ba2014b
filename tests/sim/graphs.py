"""Task graphs: waiting messages, their parents' ends, and graphs that start wholly or not at all.

A client submits graphs in one of two ways. A small graph is one commit: all batches on the home of
the commit, with the graph's record. A large one is pushed in batches on several partitions, every
root waiting for the start; when all batches are acknowledged, a commit writes the record and ends
what the roots wait for. Some clients die before that. A reaper then writes the same record, and
fails the tasks; the record exists once, so either the start or the reaper decides.

Workers pop tasks and commit: the ack, a line of the log, and the arrivals of the children. Some
tasks fail; the children of a failed task come with a reason, and fail, too.

C5 a child is lent only after all its parents have ended, or one has failed (then with the reason),
and no task of a graph that was not started is lent without a reason; C6 a task ends once, and its
line is in the log once; C8 at the end no message waits (``settled.consumed``).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from weft.dht import placement
from weft.ids import partition_of
from weft.proto import wire
from weft.proto.settings import Settings

from . import settled
from .clients import GRAPH, Batch, Clients, Used
from .graph_parts import Drawn, GraphCall, Node
from .violation import Violation

if TYPE_CHECKING:
    from .machine import Machine
    from .world import World

_PRODUCER: Final = 33
_LOG: Final = "log of tasks"
_AGAIN_US: Final = 450_000
_GRAPHS_MAX: Final = 4
#: A reaper comes again for the pushes that were on their way when it decided.
_REAPS_MAX: Final = 8
_OTHER_REASON: Final = "the graph was not started"


def queues(lease_ms: int) -> list[Used]:
    return [Used(GRAPH, 24, Settings(lease_ms=lease_ms, graphs=True))]


class Graphs:
    def __init__(self, world: World, clients: Clients, seed: int) -> None:
        self._world = world
        self._rng = random.Random(f"work of graphs of {seed}")
        self._queue = next((each for each in clients.queues if each.name == GRAPH), None)
        self._nodes: dict[bytes, Node] = {}
        self._graphs: list[Drawn] = []
        self._numbers = iter(range(1, 1 << 30))
        self._calls: list[GraphCall] = []
        self.running = True

    def schedule(self, span: int) -> None:
        for _ in range(_GRAPHS_MAX):
            self._world.after(self._rng.randrange(span // 2), self._submit)
        for _ in range(3):
            self._world.after(self._rng.randrange(span // 4), self._work)

    # --- submission -----------------------------------------------------------------------

    def _submit(self) -> None:
        rng, world = self._rng, self._world
        if self._queue is None or not self._queue.made:
            return
        partitions = world.options.partitions
        number, home = len(self._graphs), rng.randrange(partitions)
        small = rng.random() < 0.4
        batches: list[Batch] = []
        nodes: list[Node] = []
        for _ in range(rng.randrange(1, 4)):
            place = home if small else rng.randrange(partitions)
            batch = Batch(self._queue, self._number(place), [])
            batches.append(batch)
            for index in range(rng.randrange(1, 5)):
                body = b"g.%d.%d" % (number, len(nodes))
                batch.bodies.append(body)
                nodes.append(Node(body, batch, index))
            world.checker.ledger.batches[self._queue.producer, batch.number] = batch
        order = rng.sample(nodes, len(nodes))
        for place, node in enumerate(order):
            most = min(place, rng.choice([0, 1, 1, 2, 3]))
            node.parents = rng.sample(order[:place], most)
            for parent in node.parents:
                parent.children.append(node)
        self._nodes |= {node.body: node for node in nodes}
        graph = Drawn(number, nodes, batches, home)
        self._graphs.append(graph)
        for batch in batches:
            batch.sent_at = world.now
        if small:
            pushes = [self._push(graph, batch, 0) for batch in batches]
            graph.start_sent = True
            self._commit(graph.home, pushes, [self._record(graph, b"s")], [], graph=graph)
            return
        graph.dead = rng.random() < 0.3
        graph.open = len(batches)
        for batch in batches:
            if not (graph.dead and rng.random() < 0.4):
                self._ask_push(graph, batch)
        if graph.dead or rng.random() < 0.2:
            world.after(rng.randrange(4_000_000), partial(self._reap, graph))

    def _number(self, place: int) -> int:
        """A batch number that leads to a partition."""
        assert self._queue is not None
        producer, partitions = self._queue.producer, self._world.options.partitions
        return next(n for n in self._numbers if partition_of(producer, n, partitions) == place)

    def _place(self, batch: Batch) -> int:
        return partition_of(batch.queue.producer, batch.number, self._world.options.partitions)

    def _push(self, graph: Drawn, batch: Batch, more: int) -> wire.CommitPush:
        """`more`: what roots wait for, beside their parents."""
        mine = [node for node in graph.nodes if node.batch is batch]
        waits = [len(node.parents) or more for node in mine]
        producer = batch.queue.producer
        push = wire.PushWaiting(GRAPH, producer, batch.number, len(mine), waits=waits)
        return wire.CommitPush(push, wire.encode(wire.Payload(batch.bodies)))

    def _record(self, graph: Drawn, value: bytes) -> wire.Put:
        names = (f"graph {graph.number} {salt}" for salt in range(1000))
        partitions = self._world.options.partitions
        key = next(each for each in names if placement.of_text(each, partitions) == graph.home)
        return wire.Put(key, value, 0, 0, 0, 0)

    def _ask_push(self, graph: Drawn, batch: Batch) -> None:
        world = self._world
        if batch.done:
            return
        if not graph.dead or self._rng.random() < 0.7:
            world.after(_AGAIN_US, partial(self._ask_push, graph, batch))
        pushed, machine = self._push(graph, batch, 1), world.member()
        if machine is None:
            return

        def answered(_: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]) -> None:
            if isinstance(answer, wire.Pushed) and not batch.done:
                batch.done = True
                graph.open -= 1
                if self._is_stored(graph) and not graph.dead and not graph.start_sent:
                    self._start(graph)

        world.ask(machine, pushed.push, (pushed.payload,), answered, plain=True)

    def _is_stored(self, graph: Drawn) -> bool:
        return not graph.open

    def _start(self, graph: Drawn) -> None:
        graph.start_sent = True
        arrivals = self._arrivals([node for node in graph.nodes if not node.parents], "")
        self._commit(graph.home, [], [self._record(graph, b"s")], arrivals, graph=graph)

    def _reap(self, graph: Drawn, times: int = 0) -> None:
        """Fails all tasks of a graph, if its record can be written; again, for pushes that arrive
        later."""
        if graph.end == "started":
            return
        writes = [] if graph.end else [self._record(graph, b"r")]
        if graph.end or not any(c.reaps and c.graph is graph and not c.end for c in self._calls):
            arrivals = self._arrivals(graph.nodes, _OTHER_REASON)
            self._commit(graph.home, [], writes, arrivals, graph=graph, reaps=True)
        if times < _REAPS_MAX:
            self._world.after(2_000_000, partial(self._reap, graph, times + 1))

    def _arrivals(self, nodes: Sequence[Node], reason: str) -> list[wire.Arrival]:
        found: dict[int, tuple[Batch, Counter[int]]] = {}
        for node in nodes:
            found.setdefault(node.batch.number, (node.batch, Counter()))[1][node.index] += 1
        return [
            wire.Arrival(
                GRAPH, self._place(batch), batch.queue.producer, batch.number,
                [] if reason else [(index, 1, times) for index, times in counts.items()],
                [(index, 1) for index in counts] if reason else [],
                reason,
            )
            for batch, counts in found.values()
        ]  # fmt: skip

    # --- workers --------------------------------------------------------------------------

    def _work(self) -> None:
        world, rng = self._world, self._rng
        world.after(rng.randrange(50_000, 400_000), self._work)
        machine = world.member()
        # Later, perhaps: a partition without a primary is in no node's memory.
        idle = not self.running and not self._holder()
        if machine is None or idle or self._queue is None or not self._queue.made:
            return
        plain = rng.random() < 0.5
        if not plain or not self.running:  # a machine with tasks, as a smart client finds it
            machine = self._holder() or machine
        world.ask(machine, wire.Pop(GRAPH, rng.randrange(1, 5)), (), self._popped, plain=plain)

    def _holder(self) -> Machine | None:
        for machine in self._world.machines.values():
            queue = machine.node_core.engine.state.queues.get(GRAPH) if machine.up else None
            if queue is not None and queue.ready:
                return machine
        return None

    def _popped(self, _: Machine, answer: wire.AnyAnswer, frames: Sequence[bytes]) -> None:
        if not isinstance(answer, wire.Popped):
            return
        world, rng = self._world, self._rng
        for lent, frame in zip(answer.lent, frames, strict=True):
            nodes = [self._nodes[body] for body in wire.decode_payload(frame).bodies]
            for node in nodes:
                self._check_lent(node, lent)
            if self.running and rng.random() < 0.1:
                continue  # the worker dies
            late = self.running and rng.random() < 0.15
            hold_us = 2 * world.options.lease_ms * 1000 if late else 50_000
            world.after(rng.randrange(hold_us), partial(self._end, lent, nodes))

    def _check_lent(self, node: Node, lent: wire.Lent) -> None:
        """C5."""
        node.lent = True
        graph = next(each for each in self._graphs if node in each.nodes)
        reason = lent.reason
        if reason == _OTHER_REASON:
            self._that(graph.end != "started", f"C5: {node.body!r} of a started graph is reaped")
        elif reason:
            failed = any(False in parent.sent for parent in node.parents)
            self._that(failed, f"C5: {node.body!r} has a reason, and no parent has failed")
        else:
            self._that(graph.start_sent, f"C5: {node.body!r} is lent, and its graph never started")
            self._that(graph.end != "reaped", f"C5: {node.body!r} of a reaped graph is lent")
            early = [parent.body for parent in node.parents if True not in parent.sent]
            self._that(not early, f"C5: {node.body!r} is lent before its parents {early}")

    def _end(self, lent: wire.Lent, nodes: list[Node]) -> None:
        """Ends the tasks of a lease in one commit."""
        ends = [(node, not lent.reason and self._rng.random() < 0.9) for node in nodes]
        arrivals: list[wire.Arrival] = []
        for good in (True, False):
            children = [child for node, ok in ends if ok is good for child in node.children]
            arrivals += self._arrivals(children, "" if good else f"{lent.first} failed")
        receipt = wire.Receipt(lent.partition, lent.lsn, lent.nonce, [(lent.first, lent.count)])
        acks = [wire.CommitAck(GRAPH, [receipt])]
        line = b"".join(node.body + b"," for node, _ in ends)
        writes: list[wire.AnyWrite] = [wire.AppendKey(_LOG, line, 0, 0)]
        for node, ok in ends:
            node.sent.add(ok)
        self._world.checker.ledger.acking([node.body for node in nodes])
        self._commit(lent.partition, [], writes, arrivals, acks=acks, nodes=ends)

    # --- commits --------------------------------------------------------------------------

    def _commit(
        self,
        home: int,
        pushes: list[wire.CommitPush],
        writes: Sequence[wire.AnyWrite],
        arrivals: list[wire.Arrival],
        *,
        acks: Sequence[wire.CommitAck] = (),
        nodes: Sequence[tuple[Node, bool]] = (),
        graph: Drawn | None = None,
        reaps: bool = False,
    ) -> None:
        number = len(self._calls) + 1
        request = wire.CommitGraph(
            home, _PRODUCER, number, list(acks), pushes, list(writes), arrivals
        )
        call = GraphCall(request, list(nodes), graph, reaps)
        self._calls.append(call)
        self._ask(call)

    def _ask(self, call: GraphCall) -> None:
        world = self._world
        if call.end:
            return
        world.after(_AGAIN_US, partial(self._ask, call))
        machine = world.member()
        if machine is None:
            return
        plain = self._rng.random() < 0.5
        if not plain:
            place = machine.node_core.view.places[call.request.partition]
            machine = world.machines[place.primary]
        world.ask(machine, call.request, (), partial(self._answered, call), plain=plain)

    def _answered(
        self, call: GraphCall, _: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]
    ) -> None:
        if isinstance(answer, wire.Failure) and answer.retriable:
            return
        end = "done" if isinstance(answer, wire.Committed) else "refused"
        if call.end:
            self._that(call.end == end, f"C1: commit {call.request.number} is {call.end}, {answer}")
            return
        if isinstance(answer, wire.Failure):
            known = answer.code in ("LEASE_LOST", "VERSION_MISMATCH")
            self._that(known, f"commit {call.request.number} got {answer}")
        call.end = end
        if call.graph is not None:
            self._decided(call, call.graph, done=end == "done")
            return
        for node, _ok in call.nodes if end == "done" else ():
            first, own = node.ended or call.request.number, call.request.number
            node.ended = first
            self._that(first == own, f"C6: {node.body!r} is ended by {first} and {own}")

    def _decided(self, call: GraphCall, graph: Drawn, *, done: bool) -> None:
        if not call.request.writes:
            return  # the reaper, once more
        reaped = call.reaps is done
        self._that(
            graph.end in ("", "reaped" if reaped else "started"),
            f"graph {graph.number} is {graph.end}, and {'reaped' if reaped else 'started'}",
        )
        graph.end = "reaped" if reaped else "started"
        if reaped and not done:
            # The client lives, and was too late: it fails what it has pushed.
            self._reap(graph)
        for batch in graph.batches if call.request.pushes and done else ():
            batch.done = True

    # --- the end of a run -----------------------------------------------------------------

    def settled(self) -> str:
        """Every commit is answered, and every stored task has ended (C8)."""
        late = [call.request.number for call in self._calls if not call.end]
        if late:
            return f"the commits {late[:5]} of {len(late)} of graphs are not answered"
        for machine in self._world.machines.values():
            queue = machine.node_core.engine.state.queues.get(GRAPH) if machine.up else None
            if queue is not None and queue.messages:
                return f"C8: {machine.name} has {queue.messages} tasks, {queue.waiting} waiting"
        for graph in self._graphs:
            if any(batch.done for batch in graph.batches) and not graph.end:
                return f"graph {graph.number} is neither started nor reaped"
        return ""

    def check(self) -> None:
        """C6, from the log of the tasks."""
        if not self._graphs:
            return
        lines = Counter(settled.value_of(self._world, _LOG).split(b","))
        for graph in self._graphs:
            for node in graph.nodes:
                wanted = int(node.batch.done and bool(graph.end))
                count = lines[node.body]
                known = count == wanted or (count == 1 and node.lent)
                self._that(known, f"C6: {node.body!r} has ended {count} times, not {wanted}")
                if graph.end == "started":
                    self._that(count == 1, f"C6: {node.body!r} has ended {count} times")

    def _that(self, holds: bool, what: str) -> None:
        if not holds:
            raise Violation(what)
