"""The gangs of an app, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.tasks.call import check_queue
from weft.tasks.outcome import RESULT_TTL_S

if TYPE_CHECKING:
    from .gang_task import GangTask


class GangRegistry:
    """The part of `App` with gangs."""

    def __init__(self) -> None:
        self.gangs: dict[str, GangTask] = {}

    def gang(
        self, *, size: int, name: str | None = None, queue: str = "gangs", attempts: int = 1,
        assemble_timeout: float = 60.0, time_limit: float | None = None,
        soft_time_limit: float | None = None, result_ttl: float = RESULT_TTL_S,
    ) -> Callable[[Callable[..., Any]], GangTask]:  # fmt: skip
        """Registers a function that runs on `size` workers at once, for jobs of MPI and the like.

            @app.gang(size=4)
            def simulate(steps: int) -> float:
                gang = weft.tasks.current().gang  # rank, size, members
                ...

            results = simulate.submit(1000).result(timeout=60)  # by rank

        A job that is larger than all present workers of the queue fails at once, and one whose
        workers are not free within `assemble_timeout` seconds fails then, unless it is submitted
        with `with_options(wait=True)`. If a member fails or its worker dies, the others are
        cancelled; `attempts` counts starts of the whole gang. Limits are in seconds and for each
        member. docs/tasks/gangs.md has the details. Raises InvalidArgument, also for `async def`.
        """
        from .gang_task import made_gang

        app: Any = self
        check_queue(app.name, queue)
        return lambda function: made_gang(
            app, function, size, name=name, queue=queue, attempts=attempts,
            assemble_timeout=assemble_timeout, time_limit=time_limit,
            soft_time_limit=soft_time_limit, result_ttl=result_ttl,
        )  # fmt: skip
