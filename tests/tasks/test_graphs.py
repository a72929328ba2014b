"""Graphs of tasks on a real node, with worker processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.tasks import graphs_app as shop
from weft import tasks
from weft.errors import InvalidArgument, TooLarge, Unavailable, UsageError
from weft.tasks.testing import WorkerProcess, thread_worker, worker_process
from weft.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.tasks.graphs_app:app"
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def worker(node: Cluster) -> Iterator[WorkerProcess]:
    shop.app.connect(node.servers)
    shop.app.client.create_queue("graphs.marks")
    with worker_process(APP, node.servers, "-c", "2", folder=ROOT) as running:
        running.logged("takes graphs.default")
        yield running
        assert running.stop() == 0
    for queue in ("graphs.default", "graphs.slow"):
        stats = shop.app.client.queue(queue).stats()
        assert (stats.leased, stats.waiting) == (0, 0)
    shop.app.close()


def test_a_node_as_an_argument_is_replaced_by_the_result(worker: WorkerProcess) -> None:
    g = shop.app.graph()
    first = g.add(shop.one)
    left, right = g.add(shop.add, first), g.add(shop.add, first, right=10)
    last = g.add(shop.total, [left, 5, right])
    run = g.submit()
    assert run.result(TIMEOUT_S) == 18
    assert [node.result(1) for node in g.nodes] == [1, 2, 11, 18]
    assert last.future.done()
    progress = run.progress()
    assert (progress.complete, progress.counts["done"]) == (True, 4)
    again = shop.app.graph_run(run.id)
    assert again.result(1) == 18
    assert [future.result(1) for future in again.futures()] == [1, 2, 11, 18]


def test_a_chain_a_group_and_a_chord(worker: WorkerProcess) -> None:
    g = shop.app.graph()
    g.chain(0, *[shop.add] * 20)
    assert g.submit().result(TIMEOUT_S) == 20
    g = shop.app.graph()
    total = g.chord(shop.add, range(300), shop.total)
    g.submit()
    assert total.result(TIMEOUT_S) == sum(range(1, 301))


def test_order_without_results(worker: WorkerProcess) -> None:
    marks = shop.app.client.queue("graphs.marks")
    marks.purge()
    g = shop.app.graph()
    a = g.add(shop.mark, "a")
    b = g.add(shop.mark, "b", after=a)
    g.add(shop.mark, "c", after=[a, b])
    d = g.add(shop.mark, "d")
    b.after(d)
    g.submit().wait(TIMEOUT_S)
    order = [message.body for message in marks.pop_many(10)]
    assert sorted(order) == [b"a", b"b", b"c", b"d"]
    assert order.index(b"b") > max(order.index(b"a"), order.index(b"d"))
    assert order[-1] == b"c"


def test_a_failure_is_passed_on_and_tolerant_tasks_run(worker: WorkerProcess) -> None:
    g = shop.app.graph()
    bad, good = g.add(shop.fails, 7), g.add(shop.one)
    child = g.add(shop.add, bad, right=good)
    grandchild = g.add(shop.add, child)
    seen = g.add(shop.report, bad, good, on_failure="run")
    run = g.submit()
    progress = run.wait(TIMEOUT_S)
    assert progress.states == ["failed", "done", "upstream failed", "upstream failed", "done"]
    with pytest.raises(tasks.UpstreamFailed, match="ValueError: no 7") as failed:
        grandchild.result(1)
    assert bad.id in failed.value.text
    assert isinstance(failed.value, tasks.TaskFailed)
    assert seen.result(1) == ["None", "1", "ValueError: no 7"]
    with pytest.raises(tasks.TaskFailed, match="no 7"):
        run.result(1)


def test_a_failure_that_the_graph_allows_for_is_no_failure_of_the_graph(
    worker: WorkerProcess,
) -> None:
    g = shop.app.graph()
    g.add(shop.report, g.add(shop.fails, 1), on_failure="run")
    assert g.submit().result(TIMEOUT_S)[0] == "None"


def test_retries_and_plain_tasks_release_their_children_once(worker: WorkerProcess) -> None:
    g = shop.app.graph()
    retried, plain = g.add(shop.fails_once, 4), g.add(shop.plain, 1)
    g.add(shop.total, [retried, plain])
    assert g.submit().result(TIMEOUT_S) == 6


def test_a_large_graph_is_spread_and_starts_at_once(worker: WorkerProcess) -> None:
    g = shop.app.graph()
    layer = g.group(shop.add, range(1_500))
    layer = [g.add(shop.add, left, right=layer[n - 1]) for n, left in enumerate(layer)]
    last = g.add(shop.total, layer)
    run = g.submit()
    assert len({batch.partition for batch in run.record.batches}) > 1
    assert run.result(TIMEOUT_S) == 2 * sum(range(1, 1_501))
    assert last.result(1) == run.result(1)
    assert g.submit() is not None
    assert run.progress().complete


def test_submit_again_starts_nothing_twice(worker: WorkerProcess) -> None:
    marks = shop.app.client.queue("graphs.marks")
    for count in (3, 1_100):
        marks.purge()
        g = shop.app.graph()
        g.group(shop.mark, map(str, range(count)))
        for _ in range(3):
            run = g.submit()
        run.wait(TIMEOUT_S)
        assert marks.stats().ready == count


def test_large_results_pass_between_tasks(worker: WorkerProcess) -> None:
    g = shop.app.graph()
    g.add(shop.length, g.add(shop.big, 3 << 20))
    assert g.submit().result(TIMEOUT_S) == 3 << 20


def test_a_graph_from_inside_a_task(worker: WorkerProcess) -> None:
    graph_id = shop.fan.submit(50).result(TIMEOUT_S)
    assert shop.app.graph_run(graph_id).result(TIMEOUT_S) == sum(range(1, 51))
    marks = shop.app.client.queue("graphs.marks")
    marks.purge()
    assert isinstance(shop.fan_fails.submit(3).exception(TIMEOUT_S), tasks.TaskFailed)
    g = shop.app.graph()
    parent = g.add(shop.fan, 5)
    g.submit()
    assert shop.app.graph_run(parent.result(TIMEOUT_S)).result(TIMEOUT_S) == 15
    assert marks.stats().ready == 0


def test_graphs_inside_a_task_beyond_its_transaction_fail_the_task(worker: WorkerProcess) -> None:
    """The batches and the structures of the graphs count, too."""
    futures = [shop.several.submit(*each) for each in ((2, 600), (600, 1), (2, 400))]
    for future in futures[:2]:
        error = future.exception(TIMEOUT_S)
        assert error is not None
        assert (error.error, "those of its graphs included" in error.text) == ("TooLarge", True)
    assert futures[2].result(TIMEOUT_S) == 800


def test_a_cancelled_graph_ends_without_running_the_rest(worker: WorkerProcess) -> None:
    g = shop.app.graph()
    first = g.add(shop.nap, 30)
    rest = g.group(shop.nap, [first] * 20)
    g.add(shop.total, rest)
    run = g.submit()
    assert run.cancel() > 0
    progress = run.wait(TIMEOUT_S)
    assert progress.counts["cancelled"] == 22
    with pytest.raises(tasks.TaskCancelled):
        run.result(1)
    assert run.cancel() == 0


def test_one_cancelled_task_ends_its_descendants(worker: WorkerProcess) -> None:
    g = shop.app.graph()
    first = g.add(shop.nap, 0.2)
    middle = g.add(shop.add, first)
    last = g.add(shop.add, middle)
    other = g.add(shop.add, first)
    run = g.submit()
    assert not middle.future.cancel()
    run.wait(TIMEOUT_S)
    for node in (middle, last):
        with pytest.raises(tasks.TaskCancelled):
            node.result(1)
    assert other.result(1) == 2


def test_asyncio(worker: WorkerProcess) -> None:
    async def work() -> int:
        g = shop.app.graph()
        nodes = g.chain(0, shop.add, shop.add)
        run = await g.aio_submit()
        assert await run.result(TIMEOUT_S) == 2
        assert (await run.progress()).complete
        assert await (await nodes[0].aio_future()).result(1) == 1
        assert [await future.result(1) for future in await run.futures()] == [1, 2]
        again = await shop.app.aio_graph_run(run.id)
        assert await again.cancel() == 0
        await shop.app.aio_close()
        return len(again)

    assert asyncio.run(work()) == 2


def test_wrong_graphs_are_refused_and_leave_nothing_behind(worker: WorkerProcess) -> None:
    client = shop.app.client
    before = client.queue("graphs.default").stats().pushed
    other = tasks.App("elsewhere")

    @other.task
    def foreign(value: int) -> int:
        return value

    g = shop.app.graph()
    a = g.add(shop.one)
    with pytest.raises(InvalidArgument, match="of the app elsewhere"):
        g.add(foreign, 1)
    with pytest.raises(InvalidArgument, match="another graph"):
        g.add(shop.add, shop.app.graph().add(shop.one))
    with pytest.raises(InvalidArgument, match="a node of the graph"):
        g.add(shop.add, 1, after=["a"])  # type: ignore[list-item]
    with pytest.raises(InvalidArgument, match="submitted before"):
        g.add(shop.add, shop.app.future("0" * 32))
    with pytest.raises(InvalidArgument, match="task add"):
        g.add(shop.add, a, 1, 2, 3)
    with pytest.raises(InvalidArgument, match="argument 'right'"):
        g.add(shop.add, a, right="text")
    with pytest.raises(InvalidArgument, match="argument"):
        g.add(shop.add, a, right=object())
    with pytest.raises(InvalidArgument, match="on_failure"):
        g.add(shop.add, a, on_failure="never")
    with pytest.raises(InvalidArgument, match="a task of the app"):
        g.add(print, 1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="no key"):
        g.add(shop.add.with_options(key="k"), 1)
    with pytest.raises(UsageError, match="no ids"):
        a.id  # noqa: B018
    assert len(g) == 1
    b, c = g.add(shop.add, a), g.add(shop.add, a)
    b.after(c)
    c.after(b)
    with pytest.raises(InvalidArgument, match=r"cycle.*add.*->.*add"):
        g.submit()
    with pytest.raises(InvalidArgument, match="no tasks"):
        shop.app.graph().submit()
    with pytest.raises(InvalidArgument, match="has no graph"):
        shop.app.graph_run("0" * 32)
    with pytest.raises(InvalidArgument):
        shop.app.graph(ttl=0)
    assert client.queue("graphs.default").stats().pushed == before


def test_limits(worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.tasks import graph

    monkeypatch.setattr(graph, "GRAPH_TASKS_MAX", 3)
    monkeypatch.setattr(graph, "GRAPH_EDGES_MAX", 2)
    monkeypatch.setattr(graph, "PARENTS_MAX", 2)
    g = shop.app.graph()
    nodes = g.group(shop.add, range(3))
    with pytest.raises(TooLarge, match="at most 3 tasks"):
        g.add(shop.one)
    nodes[2].after(*nodes[:2])
    with pytest.raises(TooLarge, match="at most 2 dependencies"):
        nodes[1].after(nodes[0])
    monkeypatch.setattr(graph, "GRAPH_EDGES_MAX", 20)
    with pytest.raises(TooLarge, match="at most 2 parents"):
        nodes[2].after(nodes[2])
    huge = shop.app.graph()
    huge.add(shop.length, b"x" * (5 << 20))
    with pytest.raises(TooLarge, match="pass the address"):
        huge.submit()
    with pytest.raises(InvalidArgument, match="after must be"):
        shop.app.graph().add(shop.one, after=5)  # type: ignore[arg-type]


def test_a_node_deep_in_an_argument_is_refused_with_the_rule() -> None:
    g = shop.app.graph()
    first = g.add(shop.one)
    for value in ({"first": first}, [[first]], {first}, [1, {"deep": (first,)}]):
        with pytest.raises(InvalidArgument, match=r"total: .* is inside of an argument"):
            g.add(shop.total, value)
    with pytest.raises(InvalidArgument, match="argument 'values'"):
        g.add(shop.total, {"no": object()})
    assert len(g) == 1


def test_a_graph_of_too_many_batches_is_refused_before_anything_is_sent() -> None:
    """Different delays are different batches; one commit releases them all."""
    wide = shop.app.graph()
    first = wide.add(shop.one)
    for n in range(2_049):
        wide.add(shop.add.with_options(delay=n), first)
    with pytest.raises(TooLarge, match=r"the children of .* would be 2049 batches, at most 2048"):
        wide.planned(16)
    flat = shop.app.graph()
    for n in range(4_097):
        flat.add(shop.one.with_options(delay=n))
    with pytest.raises(TooLarge, match="the graph would be 4097 batches, at most 4096"):
        flat.planned(16)


def test_a_task_whose_inputs_cannot_be_read_is_not_counted_as_an_attempt(
    node: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from weft.tasks import execution
    from weft.tasks.graph_inputs import GraphInputs

    app = tasks.App("unread", node.servers)

    @app.task
    def first() -> int:
        return 1

    @app.task(attempts=1)
    def second(value: int) -> tuple[int, int]:
        return value, tasks.current().attempt

    read, failures = GraphInputs._read, [Unavailable("no node answers")] * 3

    async def unread(self: GraphInputs, missing: list[int]) -> dict[int, Any]:
        if failures:
            raise failures.pop()
        return await read(self, missing)

    monkeypatch.setattr(GraphInputs, "_read", unread)
    monkeypatch.setattr(GraphInputs, "remember", lambda *_: None)
    monkeypatch.setattr(execution, "GIVEN_UP_MS", 1)
    with thread_worker(app, node.servers):
        g = app.graph()
        g.add(second, g.add(first))
        assert g.submit().result(TIMEOUT_S) == (1, 1)
    assert not failures
    app.close()


def test_inline() -> None:
    with shop.app.inline():
        g = shop.app.graph()
        total = g.chord(shop.add, range(3), shop.total)
        run = g.submit()
        assert (run.result(), total.result(), run.progress().complete) == (6, 6, True)
        g = shop.app.graph()
        bad = g.add(shop.fails)
        child = g.add(shop.add, bad)
        seen = g.add(shop.report, bad, on_failure="run")
        run = g.submit()
        assert run.progress().states == ["failed", "upstream failed", "done"]
        with pytest.raises(tasks.UpstreamFailed):
            child.result()
        assert seen.result()[0] == "None"
        assert isinstance(weft.tasks.current, object)
