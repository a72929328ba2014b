"""Registration of handlers: a handler names its requests beside its own definition.

So a new verb needs no entry in a list of handlers::

    handles: Final = Handlers[Callable[..., None]]()

    @handles(wire.Peek)
    def peek(state: EngineState, request: wire.Peek, to: object) -> None: ...

    handles.by_request[wire.Peek](state, request, to)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from .request import Request
from .verbs import VERBS

H = TypeVar("H", bound=Callable[..., Any])
F = TypeVar("F", bound=Callable[..., Any])


class Handlers(Generic[H]):
    """The handlers of one kind. A request has at most one of each kind."""

    def __init__(self) -> None:
        self.by_request: dict[type[Request], H] = {}

    def __call__(self, *requests: type[Request]) -> Callable[[F], F]:
        """Registers the decorated function as the handler of these requests."""

        def register(handler: F) -> F:
            for request in requests:
                assert request in VERBS, f"{request.__name__} has no row in proto/verbs.py"
                assert request not in self.by_request, f"{request.__name__} has two handlers"
                self.by_request[request] = handler  # type: ignore[assignment]
            return handler

        return register
