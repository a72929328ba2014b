"""Large results, stored in chunks before the commit whose block names them.

The chunks of a failed commit have no reader and expire.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from weft.client.kv_core import KvCore
from weft.client.routing.session import ClientSession

from .call import chunk_key
from .graph_ends import ttl_of
from .outcome import CHUNK_BYTES, LargeResult, PickledResult

if TYPE_CHECKING:
    from .execution import TaskRun


async def store_large(session: ClientSession, app: str, runs: Sequence[TaskRun]) -> None:
    """Replaces the large results of runs by the keys of their chunks."""
    for run in runs:
        data = run.outcome
        if isinstance(data, msgspec.Raw) and len(data) > CHUNK_BYTES:
            run.outcome = await stored_result(session, app, bytes(data), ttl_of(run))
        elif isinstance(data, PickledResult) and len(data.data) > CHUNK_BYTES:
            keys = await _stored_chunks(session, app, data.data, ttl_of(run))
            run.outcome = PickledResult(b"", keys)


async def stored_result(
    session: ClientSession, app: str, raw: bytes, ttl_ms: int
) -> msgspec.Raw | LargeResult:
    """Stores a large result in chunks; returns what its block has in its place."""
    if len(raw) <= CHUNK_BYTES:
        return msgspec.Raw(raw)
    return LargeResult(await _stored_chunks(session, app, raw, ttl_ms))


async def _stored_chunks(session: ClientSession, app: str, raw: bytes, ttl_ms: int) -> list[str]:
    name, kv = secrets.token_hex(8), KvCore(session)
    keys: list[str] = []
    for start in range(0, len(raw), CHUNK_BYTES):
        keys.append(chunk_key(app, name, len(keys)))
        # A little longer than the block, so that no reader finds a block without chunks.
        await kv.insert(keys[-1], raw[start : start + CHUNK_BYTES], ttl_ms=ttl_ms + 60_000)
    return keys
