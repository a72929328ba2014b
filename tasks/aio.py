"""The functions of `weft.tasks` for asyncio: the same names, awaited.

futures = await resize.aio.map(paths, width=100)
widths = await weft.tasks.aio.gather(futures, timeout=60)
"""

from __future__ import annotations

from .future import AsyncFuture as Future
from .future import async_as_completed as as_completed
from .future import async_gather as gather

__all__ = ["Future", "as_completed", "gather"]
