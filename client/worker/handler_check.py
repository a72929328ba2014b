"""Checks that a handler does its work when it is called, because its return acks the message.

The call of a coroutine function or of a generator function runs no line of its body. A worker that
took the returned object for a result would ack, and so lose, every message.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from weft.client import arguments
from weft.errors import InvalidArgument, UsageError


def check_handler(name: str, handler: Callable[..., object], *, awaits: bool) -> None:
    """Accepts a function; with `awaits` also a coroutine function. Raises InvalidArgument."""
    arguments.check_function(name, handler)
    # An object with an async or generator `__call__` is as wrong as such a function.
    for each in (handler, type(handler).__call__):
        if inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
            raise InvalidArgument(
                f"{name} must be a plain function, not a generator function: its body would never "
                "run. Remove the yield"
            )
        if not awaits and inspect.iscoroutinefunction(each):
            raise InvalidArgument(
                f"{name} must be a plain function, not an async function: its body would never "
                "run. Use weft.aio for async def"
            )


def check_result(result: object) -> UsageError | None:
    """The error of a handler whose result shows that the work was not done."""
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        kind = "a generator"
    elif inspect.isawaitable(result):
        kind = "an awaitable"
    else:
        return None
    if inspect.isgenerator(result) or inspect.iscoroutine(result):
        result.close()  # otherwise Python warns that the coroutine was never awaited
    return UsageError(
        f"the handler returned {kind}, whose body never ran: pass a plain function, or use weft.aio"
    )
