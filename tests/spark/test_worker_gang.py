"""The end of workers in Spark's executors, without Spark."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, ClassVar

import pytest

from weft.errors import DeadlineExceeded, Unavailable
from weft.spark import worker_gang


class LostTable:
    """The hash table of a cluster that is lost at the end of the context."""

    def __init__(self, up: int) -> None:
        self.up = up
        self.rows: dict[str, bytes] = {}

    def insert(self, key: str, value: bytes, *, ttl_ms: int) -> None:
        self.rows[key] = value

    def scan(self, prefix: str, limit: int) -> list[str]:
        return ["one worker is up"][: self.up]

    def remove(self, key: str) -> None:
        raise Unavailable("no node answers")


class LostClient:
    def __init__(self, up: int) -> None:
        self.kv = LostTable(up)

    def __enter__(self) -> LostClient:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class EndlessJob:
    """A barrier job; `graces` has the time that each of them was given at its end."""

    graces: ClassVar[list[float]]

    def __init__(self, *_: object) -> None:
        pass

    def check(self) -> None:
        pass

    def end(self, grace_s: float) -> None:
        self.graces.append(grace_s)


def lost(monkeypatch: pytest.MonkeyPatch, up: int) -> AbstractContextManager[None]:
    """The context of one worker, at a cluster with so many that are up."""
    session: Any = type("Session", (), {"sparkContext": None})()
    monkeypatch.setattr(worker_gang, "connect", lambda servers: LostClient(up))
    monkeypatch.setattr(worker_gang, "_GangJob", EndlessJob)
    monkeypatch.setattr(EndlessJob, "graces", [], raising=False)
    return worker_gang.workers(session, 1, "shop:app", timeout=0)


def test_the_job_ends_although_the_cluster_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slots are free again, and the error of the context is the one that is raised."""
    with pytest.raises(ValueError, match="mine"), lost(monkeypatch, up=1):
        raise ValueError("mine")
    assert len(EndlessJob.graces) == 1
    assert EndlessJob.graces[0] > 0, "the worker finishes its task"


def test_a_job_without_a_worker_is_cancelled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark looks for slots for ten minutes; nothing runs that could finish."""
    with pytest.raises(DeadlineExceeded, match="have not started"), lost(monkeypatch, up=0):
        pass
    assert EndlessJob.graces == [0]
