"""The graphs of an app: the methods of `App` that make and find them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from weft.client import arguments
from weft.client.transport.blocking_link import run
from weft.ids import MessageId

from .graph import GRAPH_TTL_S, Graph
from .graph_record import read_record
from .graph_run import AsyncGraphRun, GraphRun

if TYPE_CHECKING:
    from .app import App


class AppGraphs:
    def graph(self, *, ttl: float = GRAPH_TTL_S) -> Graph:
        """Returns an empty graph: tasks with dependencies, submitted wholly or not at all.

            g = app.graph()
            page = g.add(fetch, url)
            g.add(count, page)
            print(g.submit().result(timeout=60))

        Results and structure of the graph are kept for `ttl` seconds. Raises InvalidArgument.
        """
        return Graph(cast("App", self), ttl)

    def graph_run(self, graph_id: str | MessageId) -> GraphRun:
        """A submitted graph by its id, in any process. Raises InvalidArgument for an unknown id."""
        app = cast("App", self)
        number = arguments.as_message_id("graph_id", graph_id)
        record, _ = run(read_record(app.session, app.name, number))
        return GraphRun(app, record)

    async def aio_graph_run(self, graph_id: str | MessageId) -> AsyncGraphRun:
        """A submitted graph by its id, on this event loop."""
        app = cast("App", self)
        number = arguments.as_message_id("graph_id", graph_id)
        record, _ = await read_record(await app.aio_session(), app.name, number)
        return AsyncGraphRun(app, record)
