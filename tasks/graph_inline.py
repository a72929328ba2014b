"""A graph run in the submitting thread, for tests: parents first, the same encodings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weft.errors import TaskCancelled, UpstreamFailed
from weft.ids import MessageId

from .call import BodyFrame, PickledSlots, TaskCall
from .future import Future
from .graph_arguments import filled
from .graph_links import Input
from .graph_plan import parents_first
from .inline import InlineResults
from .outcome import NIL, Outcome, PickledResult, TaskError
from .pickled_arguments import encode_pickled

if TYPE_CHECKING:
    from .graph import Graph, GraphNode


def run_inline(graph: Graph) -> list[Future]:
    """Runs all tasks; returns their futures in the order of `add`."""
    runner = graph.app.inline_runner
    assert runner is not None
    graph.planned(1)
    futures: dict[int, Future] = {}
    for node in parents_first(graph):
        reason = next((_reason(futures[parent]) for parent in _failed(node, futures)), "")
        if reason and node.on_failure != "run":
            outcome = TaskError(UpstreamFailed.code, UpstreamFailed.__name__, reason)
            results: Any = InlineResults(outcome, MessageId(node.number), None, graph.app)
            futures[node.index] = Future(graph.app, results, node.number)
        else:
            futures[node.index] = runner.run(_body(node, futures))
    return [futures[node.index] for node in graph.nodes]


def _failed(node: GraphNode, futures: dict[int, Future]) -> list[int]:
    return [
        parent for parent in node.parents if isinstance(_outcome(futures[parent]), TaskError)
    ]  # fmt: skip


def _outcome(future: Future) -> Outcome:
    return future._batch.found[future.index]


def _reason(future: Future) -> str:
    outcome = _outcome(future)
    assert isinstance(outcome, TaskError)
    if outcome.kind in (UpstreamFailed.code, TaskCancelled.code):
        return outcome.text
    return f"task {future.id} failed: {outcome.error}: {outcome.text}"


def _body(node: GraphNode, futures: dict[int, Future]) -> bytes:
    packed, words = node.arguments
    name, args, kwargs = node.task.name, msgspec.Raw(packed), msgspec.Raw(words)
    pickled = PickledSlots(name, node.pickled) if node.task.pickles else None
    call = TaskCall(name, args, kwargs, pickled=pickled)
    inputs = [
        Input(slot, item, parent.index.to_bytes(16, "big")) for slot, item, parent in node.places
    ]

    def result_of(task: bytes) -> msgspec.Raw | PickledResult:
        outcome = _outcome(futures[int.from_bytes(task, "big")])
        return outcome if isinstance(outcome, msgspec.Raw | PickledResult) else NIL

    call = filled(call, inputs, result_of)
    if call.pickled is not None and call.pickled.slots:
        slots = call.pickled.slots
        return encode_pickled(name, bytes(call.args), bytes(call.kwargs), call.options, slots)
    return BodyFrame(node.task.name).body(bytes(call.args), bytes(call.kwargs))
