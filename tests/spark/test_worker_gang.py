"""The end of workers in Spark's executors, without Spark."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from weft.errors import Unavailable
from weft.spark import worker_gang


class LostTable:
    """The hash table of a cluster that is lost at the end of the context."""

    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}

    def insert(self, key: str, value: bytes, *, ttl_ms: int) -> None:
        self.rows[key] = value

    def scan(self, prefix: str, limit: int) -> list[str]:
        return ["one worker is up"]

    def remove(self, key: str) -> None:
        raise Unavailable("no node answers")


class LostClient:
    def __init__(self) -> None:
        self.kv = LostTable()

    def __enter__(self) -> LostClient:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class EndlessJob:
    ended: ClassVar[list[EndlessJob]] = []

    def __init__(self, *_: object) -> None:
        pass

    def check(self) -> None:
        pass

    def end(self) -> None:
        self.ended.append(self)


def test_the_job_ends_although_the_cluster_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slots are free again, and the error of the context is the one that is raised."""
    session: Any = type("Session", (), {"sparkContext": None})()
    monkeypatch.setattr(worker_gang, "connect", lambda servers: LostClient())
    monkeypatch.setattr(worker_gang, "_GangJob", EndlessJob)
    with pytest.raises(ValueError, match="mine"), worker_gang.workers(session, 1, "shop:app"):
        raise ValueError("mine")
    assert len(EndlessJob.ended) == 1
