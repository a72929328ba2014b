"""Tasks inline: the same encodings, attempts and effects as on a worker, without nodes."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable

import pytest

import weft
from tests.tasks import shop
from weft import tasks
from weft.tasks.inline import InlineRunner

Inline = Callable[[tasks.App], InlineRunner]


@pytest.fixture
def runner(inline_tasks: Inline) -> InlineRunner:
    return inline_tasks(shop.app)


def test_results_are_typed(runner: InlineRunner) -> None:
    assert shop.double.submit(4).result() == 8
    assert [each.result() for each in shop.double.map([1, 2])] == [2, 4]
    order = shop.Order(7, datetime.date(2026, 2, 28))
    assert shop.next_day.submit(order).result() == shop.Order(7, datetime.date(2026, 3, 1))
    assert shop.double(5) == 10


def test_attempts_are_used_up(runner: InlineRunner) -> None:
    assert shop.succeed_at.submit(3).result() == 3
    error = shop.succeed_at.submit(9).exception()
    assert error is not None
    assert (error.error, error.text) == ("ValueError", "attempt 3 fails")
    assert "succeed_at" in error.trace


def test_effects_happen_only_with_success(runner: InlineRunner) -> None:
    shop.with_effects.submit(5).result()
    assert [push.body for push in runner.pushed] == [b"5"]
    assert {write.key: write.value for write in runner.written} == {
        "effect/5": b"1",
        "effect/last": b"5",
    }
    with pytest.raises(weft.TaskFailed, match="RuntimeError: no effects"):
        shop.fail_with_effects.submit(1).result()
    assert len(runner.pushed) == 1


def test_async_tasks_run_inline(runner: InlineRunner) -> None:
    assert shop.wait_for.submit(0).result() == 1
    error = shop.wait_long.submit().exception()
    assert isinstance(error, weft.TaskTimedOut)


def test_results_that_cannot_be_encoded_fail(runner: InlineRunner) -> None:
    with pytest.raises(weft.TaskFailed, match="result of task unencodable cannot be encoded"):
        shop.unencodable.submit().result()


def test_inline_ends_with_the_block_and_does_not_nest(runner: InlineRunner) -> None:
    with pytest.raises(weft.UsageError, match="inline already"), shop.app.inline():
        pass


def test_current_is_for_tasks_alone() -> None:
    with pytest.raises(weft.UsageError, match="no task runs here"):
        tasks.current()


async def test_the_asyncio_side_runs_inline_too(runner: InlineRunner) -> None:
    """Without a node; and a plain submit of a coroutine in a test that is one itself."""
    app = tasks.App("inline-aio")

    @app.task
    async def double(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    with app.inline():
        assert await (await double.aio.submit(2)).result() == 4
        futures = await double.aio.map([1, 2])
        assert await tasks.aio.gather(futures) == [2, 4]
        assert double.submit(3).result() == 6
