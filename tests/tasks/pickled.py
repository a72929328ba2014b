"""Apps that pickle, or do not: imported by worker processes, and by the tests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from weft import tasks

#: Names of apps share a cluster: tests of other files have other names.
app = tasks.App("pickled", pickle=True)
#: The same tasks without the setting, and with the same name, as another client would have it.
plain = tasks.App("pickled")


class Recipe:
    """A class of the application that msgpack does not know."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


@app.task
def apply(function: Callable[..., Any], *values: Any) -> Any:
    return function(*values)


@app.task
def renamed(recipe: Recipe, name: str) -> Recipe:
    return Recipe(f"{recipe.name} {name}")


@app.task
def below(path: PurePosixPath, *, depth: int = 1, test: Any = None) -> list[str]:
    return [str(path), str(depth), str(test is not None and test(depth))]


@app.task
def adder(n: int) -> Any:
    return lambda value: value + n


@app.task
def add_up(functions: list[Any], value: int = 1) -> int:
    return sum(each(value) if callable(each) else int(each) for each in functions)


@app.task
def double(n: int) -> int:
    return 2 * n


@app.task
def lock() -> Any:
    return threading.Lock()


@app.task
def failure() -> Any:
    return ValueError("an exception as a result")


@app.task
def of_size(size: int) -> Any:
    return len, bytes(size)


@app.task(queue="loop")  # of an event loop, which runs all tasks of its worker
async def apply_async(function: Callable[..., Any], value: Any) -> Any:
    return function(value)
