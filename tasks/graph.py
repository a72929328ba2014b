"""A graph: tasks with dependencies, built in one process and submitted wholly or not at all.

g = app.graph()
page = g.add(fetch, "https://example.org")
words = g.add(count, page)          # a node as an argument: the result of that task
g.add(report, page, words, on_failure="run")
run = g.submit()
print(run.result(timeout=60))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from weft.client import arguments
from weft.client.transport.blocking_link import run
from weft.errors import InvalidArgument, TooLarge, UsageError
from weft.ids import MessageId

from .call import Slot
from .future import AsyncFuture, Future
from .graph_arguments import bound, check_calls, check_depth
from .graph_run import AsyncGraphRun, GraphRun
from .submission import SubmitOptions
from .task import AppTask, Submitter

if TYPE_CHECKING:
    from .app import App
    from .graph_plan import GraphPlan
    from .task_context import TaskContext

#: Tasks of one graph: a client holds and sends them all, and one commit starts them.
GRAPH_TASKS_MAX: Final = 100_000
#: Dependencies of one graph: the stored structure of a graph has some bytes for each.
GRAPH_EDGES_MAX: Final = 1_000_000
#: Parents of one task: its message has the ids of those with a result in the arguments.
PARENTS_MAX: Final = 10_000
#: How long results and structure of a graph are kept, in seconds.
GRAPH_TTL_S: Final = 24 * 3600.0
#: `on_failure`: the task fails with its parent, or runs anyway.
FAIL, RUN = "fail", "run"


class GraphNode:
    """A task of a graph. Pass the node as an argument of later tasks for its result."""

    __slots__ = (
        "_frame", "graph", "index", "number", "on_failure", "options", "parents", "pickled",
        "places", "task",
    )  # fmt: skip

    def __init__(
        self, graph: Graph, index: int, task: AppTask[Any, Any], options: SubmitOptions
    ) -> None:
        self.graph = graph
        self.index = index
        self.task = task
        self.options = options
        self.on_failure = FAIL
        self.parents: dict[int, None] = {}
        #: The encoded arguments, and the places of results in them.
        self._frame: tuple[bytes, bytes] = (b"", b"")
        self.places: list[tuple[int | str, int, GraphNode]] = []
        #: The pickled ones of the arguments.
        self.pickled: list[Slot] = []
        #: The task's id, once the graph is planned.
        self.number = MessageId(0)

    def __repr__(self) -> str:
        return f"<GraphNode {self.index} {self.task.name}>"

    @property
    def arguments(self) -> tuple[bytes, bytes]:
        return self._frame

    @property
    def id(self) -> str:
        """The task's id, after the submission. Raises UsageError before."""
        if not self.number:
            raise UsageError("the graph was not submitted yet: its tasks have no ids")
        return str(self.number)

    @property
    def future(self) -> Future:
        """The future of the task, after the submission."""
        app = self.graph.app
        if (ran := self.graph.inline_futures) is not None:
            return ran[self.index]
        self.id  # noqa: B018
        return Future(app, app.results(self.number, self.task.signature.result), self.number)

    async def aio_future(self) -> AsyncFuture:
        """The future of the task on this event loop, after the submission."""
        self.id  # noqa: B018
        app = self.graph.app
        session = await app.aio_session()
        batch = app.results(self.number, self.task.signature.result, session)
        return AsyncFuture(app, batch, self.number)

    def result(self, timeout: float | None = None) -> Any:
        """Waits for the task's result, after the submission; see `Future.result`."""
        return self.future.result(timeout)

    def after(self, *parents: GraphNode) -> GraphNode:
        """Runs the task after other tasks, without their results. Returns the node."""
        self.graph.check_open()
        for parent in parents:
            self.graph.connect(parent, self)
        return self


class Graph:
    """Tasks with dependencies; see the module. An instance belongs to one thread."""

    def __init__(self, app: App, ttl: float = GRAPH_TTL_S, context: TaskContext | None = None):
        arguments.check_number("ttl", ttl, 1, 366 * 24 * 3600)
        self.app = app
        self.ttl_ms = int(ttl * 1000)
        self.nodes: list[GraphNode] = []
        self.edges = 0
        self.inline_futures: list[Future] | None = None
        self._context = context
        self._plan: GraphPlan | None = None
        self._submitted = False

    def __repr__(self) -> str:
        return f"<Graph of {self.app.name}, {len(self.nodes)} tasks, {self.edges} dependencies>"

    def __len__(self) -> int:
        return len(self.nodes)

    def add(
        self,
        task: AppTask[Any, Any] | Submitter,
        *args: Any,
        after: GraphNode | Sequence[GraphNode] = (),
        on_failure: str = FAIL,
        **kwargs: Any,
    ) -> GraphNode:
        """Adds a call of a task and returns its node.

            a = g.add(f, 1)
            b = g.add(h, a)             # runs after a, with the result of a
            c = g.add(k, [a, b])        # a list of results
            d = g.add(log, after=c)     # runs after c, without its result

        `task` may have options: `g.add(f.with_options(priority=9), 1)`. If a parent fails, the task
        ends with UpstreamFailed; with `on_failure="run"` it runs after the end of all parents, and
        gets None for the result of a failed one. Raises InvalidArgument, also for wrong arguments
        and for a task of another app, and TooLarge for more than GRAPH_TASKS_MAX tasks.
        """
        self.check_open()
        options = SubmitOptions()
        if isinstance(task, Submitter):
            options, task = task.options, task.task
        self._check_task(task, options)
        if on_failure not in (FAIL, RUN):
            raise InvalidArgument(f"on_failure must be {FAIL!r} or {RUN!r}, not {on_failure!r}")
        for value in (*args, *kwargs.values()):
            check_calls(value)
        node = GraphNode(self, len(self.nodes), task, options)
        node.on_failure = on_failure
        try:
            packed, words, node.places, node.pickled = bound(task, args, kwargs, GraphNode)
        except InvalidArgument:
            for value in (*args, *kwargs.values()):
                check_depth(task.name, value, GraphNode)
            raise
        node._frame = packed, words
        if not isinstance(after, GraphNode):
            arguments.check_iterable("after", after, "nodes")
        before = [after] if isinstance(after, GraphNode) else list(after)
        parents = [parent for _, _, parent in node.places] + before
        for parent in parents:
            self._check_parent(parent)
        self.nodes.append(node)
        try:
            for parent in parents:
                self.connect(parent, node)
        except TooLarge:
            self.nodes.pop()
            self.edges -= len(node.parents)
            raise
        return node

    def chain(self, first: Any, *tasks: AppTask[Any, Any] | Submitter) -> list[GraphNode]:
        """Adds tasks that run one after the other, each with the result of the one before.

            load, clean, store = g.chain("in.csv", load_file, clean_rows, store_rows)

        `first` is the argument of the first task: a value, or a node.
        """
        arguments_of: Any = first
        made: list[GraphNode] = []
        for task in tasks:
            arguments_of = self.add(task, arguments_of)
            made.append(arguments_of)
        return made

    def group(
        self, task: AppTask[Any, Any] | Submitter, values: Iterable[Any], **kwargs: Any
    ) -> list[GraphNode]:
        """Adds a call for each value; `kwargs` are the same for each call."""
        arguments.check_iterable("values", values, "first arguments")
        return [self.add(task, value, **kwargs) for value in values]

    def chord(
        self,
        task: AppTask[Any, Any] | Submitter,
        values: Iterable[Any],
        callback: AppTask[Any, Any] | Submitter,
        **kwargs: Any,
    ) -> GraphNode:
        """Adds a group, and a task that gets the list of its results; returns that task's node.

        total = g.chord(size_of, paths, add_up)
        """
        return self.add(callback, self.group(task, values, **kwargs))

    # --- submission ---

    def submit(self) -> GraphRun:
        """Submits the graph: all tasks become durable, and the graph starts, or nothing runs.

        A call after an error sends the same graph again: it starts once. Inside a task of the app
        the graph starts with the success of the task, and has at most 1,000 tasks. Raises
        InvalidArgument for a cycle or an empty graph, and the errors of a push; then no task runs,
        and stored tasks of a large graph are ended after some minutes.
        """
        if self.app.inline_runner is not None:
            from .graph_inline import run_inline

            self.check_open()
            self._submitted = True
            self.inline_futures = run_inline(self)
            return GraphRun(self.app, self.planned(0).record, self.inline_futures)
        if self._context is not None:
            plan = self._context.add_graph(self)
            self._submitted = True
            return GraphRun(self.app, plan.record)
        from .graph_submission import submit_graph

        session = self.app.session
        run(submit_graph(session, self.app.name, self.planned_for(session)))
        self._submitted = True
        return GraphRun(self.app, self.planned(0).record)

    async def aio_submit(self) -> AsyncGraphRun:
        """Submits the graph on an event loop; see `submit`."""
        from .graph_submission import submit_graph

        if self._context is not None:
            plan = self._context.add_graph(self)
            self._submitted = True
            return AsyncGraphRun(self.app, plan.record)
        session = await self.app.aio_session()
        await submit_graph(session, self.app.name, self.planned_for(session))
        self._submitted = True
        return AsyncGraphRun(self.app, self.planned(0).record)

    # --- inside ---

    def planned_for(self, session: Any) -> GraphPlan:
        from .graph_plan import SessionNames

        return self.planned(session.router.partitions, SessionNames(session))

    def planned(self, partitions: int, names: Any = None, home: int | None = None) -> GraphPlan:
        """The plan, the same for each attempt."""
        from .graph_plan import InlineNames, plan

        if self._plan is None:
            self._plan = plan(self, partitions, names or InlineNames(), home)
        return self._plan

    def connect(self, parent: GraphNode, child: GraphNode) -> None:
        """Adds a dependency, once."""
        self._check_parent(parent)
        if parent.index in child.parents:
            return
        if len(child.parents) >= PARENTS_MAX:
            raise TooLarge(f"a task has at most {PARENTS_MAX} parents: add tasks in between")
        if self.edges >= GRAPH_EDGES_MAX:
            raise TooLarge(f"a graph has at most {GRAPH_EDGES_MAX} dependencies")
        child.parents[parent.index] = None
        self.edges += 1

    def check_open(self) -> None:
        if self._submitted or self._plan is not None:
            raise UsageError("the graph was submitted: make another one with app.graph()")

    def _check_task(self, task: Any, options: SubmitOptions) -> None:
        if not isinstance(task, AppTask):
            raise arguments.wrong_type("task", "a task of the app", task)
        if task.app is not self.app:
            raise InvalidArgument(
                f"the task {task.name} is of the app {task.app.name}, and the graph of "
                f"{self.app.name}: a graph has tasks of one app"
            )
        if options.key is not None:
            raise InvalidArgument("a task of a graph has no key: the graph itself starts once")
        if len(self.nodes) >= GRAPH_TASKS_MAX:
            raise TooLarge(f"a graph has at most {GRAPH_TASKS_MAX} tasks: submit several graphs")

    def _check_parent(self, parent: Any) -> None:
        if not isinstance(parent, GraphNode):
            raise arguments.wrong_type("a parent", "a node of the graph", parent)
        if parent.graph is not self:
            raise InvalidArgument(
                f"{parent!r} is a node of another graph: a task depends on tasks of its own graph"
            )
