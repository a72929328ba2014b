"""The functions of systems that take functions: RQ and Dask."""

from __future__ import annotations

import time


def null(value: float) -> float:
    return value


def sleep(value: float) -> float:
    time.sleep(value)
    return value
