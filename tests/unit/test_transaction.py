"""A transaction of the client: what may be repeated, for how long, and with which words."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

from weft import limits
from weft.client.routing.router import Router
from weft.client.routing.session import RESEND_MS_MAX, ClientSession
from weft.client.transaction.async_transaction import AsyncTransaction
from weft.client.transaction.home_numbers import HomeNumbers
from weft.errors import DeadlineExceeded, LeaseLost, Unavailable, UsageError, WeftError
from weft.proto import wire

DONE = wire.Committed(False, [])


class OnePlace:
    partitions = 4

    def of_text(self, text: str) -> int:
        return 1


class Session(ClientSession):
    """Ends each call as a test says."""

    def __init__(self, *ends: WeftError | wire.Committed) -> None:
        super().__init__(cast(Router, OnePlace()))
        self.ends = list(ends)
        self.asked: list[tuple[Any, int | None]] = []

    async def ask(self, request: Any, expected: Any, timeout_ms: int | None) -> Any:
        self.asked.append((request, timeout_ms))
        end = self.ends.pop(0)
        if isinstance(end, WeftError):
            raise end
        return end


def begun(session: Session) -> AsyncTransaction:
    tx = AsyncTransaction(session, HomeNumbers(session))
    tx.kv.append("key", b"x")
    return tx


def test_a_commit_without_an_answer_inside_the_block_can_be_repeated_after_it() -> None:
    session = Session(Unavailable("no answer"), DONE)
    tx = begun(session)

    async def use() -> None:
        with pytest.raises(Unavailable):
            async with tx:
                await tx.commit()
        await tx.commit()

    asyncio.run(use())
    (first, _), (second, _) = session.asked
    assert first is second


def test_an_exception_in_the_block_before_the_commit_discards_the_effects() -> None:
    tx = begun(session := Session())

    async def use() -> None:
        with pytest.raises(KeyError):
            async with tx:
                raise KeyError
        with pytest.raises(UsageError, match="aborted"):
            await tx.commit()

    asyncio.run(use())
    assert not session.asked


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


def test_a_commit_without_messages_is_not_repeated_when_its_name_may_be_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, session = Clock(monkeypatch), Session(DeadlineExceeded("late"), DeadlineExceeded("late"))
    tx = begun(session)

    async def use() -> None:
        for _ in range(2):
            with pytest.raises(DeadlineExceeded):
                await tx.commit(timeout_ms=3_600_000)
            clock.now += 200
        with pytest.raises(UsageError, match="may or may not have been done"):
            await tx.commit()

    asyncio.run(use())
    assert [timeout for _, timeout in session.asked] == [RESEND_MS_MAX, RESEND_MS_MAX - 200_000]
    assert RESEND_MS_MAX < limits.TABLE_NAME_MS


def test_a_lease_lost_long_after_the_first_attempt_is_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, session = Clock(monkeypatch), Session(Unavailable("no answer"), LeaseLost("lost"))
    tx = begun(session)
    monkeypatch.setattr(tx, "_timeout_ms", lambda timeout_ms: timeout_ms)  # as with messages

    async def use(wait_s: int) -> LeaseLost:
        with pytest.raises(Unavailable):
            await tx.commit()
        clock.now += wait_s
        with pytest.raises(LeaseLost) as lost:
            await tx.commit()
        return lost.value

    assert asyncio.run(use(RESEND_MS_MAX // 1000)).in_doubt
    session.ends = [Unavailable("no answer"), LeaseLost("lost")]
    tx = begun(session)
    monkeypatch.setattr(tx, "_timeout_ms", lambda timeout_ms: timeout_ms)
    assert not asyncio.run(use(10)).in_doubt


@pytest.mark.parametrize("timeout_ms", [None, 1_000, 3_600_000])
def test_a_named_write_ends_before_its_name_is_forgotten(timeout_ms: int | None) -> None:
    session = ClientSession(cast(Router, OnePlace()), 3_600_000)
    wanted = RESEND_MS_MAX if timeout_ms is None else min(timeout_ms, RESEND_MS_MAX)
    assert session.named_timeout_ms(timeout_ms) == wanted
