"""The asyncio face of Weft: the names of `weft`, awaited.

async with weft.aio.connect("127.0.0.1:7700") as client:
    await client.queue("orders").push(b"one")
"""

from __future__ import annotations

from weft.client.client import Client, Queue, Stage, Subscription, connect
from weft.client.consumer import Consumer
from weft.client.message import AsyncMessage as Message
from weft.client.producer import Producer

__all__ = ["Client", "Consumer", "Message", "Producer", "Queue", "Stage", "Subscription", "connect"]
