"""The client's side of a bidirectional gRPC stream: a test sends its requests one by one."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any


class Duplex:
    """One call. `send` and `end` for the client's side, `next` for the answers."""

    def __init__(self, method: Callable[..., Any], **options: Any) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.call = method(self._sent(), **options)

    def _sent(self) -> Iterator[Any]:
        while (request := self._requests.get()) is not None:
            yield request

    def send(self, *requests: Any) -> None:
        for request in requests:
            self._requests.put(request)

    def end(self) -> None:
        """The client sends no more."""
        self._requests.put(None)

    def next(self) -> Any:
        return next(self.call)

    def rest(self) -> list[Any]:
        return list(self.call)

    def cancel(self) -> None:
        self.call.cancel()
        self._requests.put(None)
