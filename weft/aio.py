"""The asyncio API of Weft: the same names as in `weft`, awaited.

async with weft.aio.connect("127.0.0.1:7700") as client:
    await client.queue("orders").push(b"one")
"""

from __future__ import annotations

from weft.client.async_client import AsyncClient as Client
from weft.client.async_client import AsyncStage as Stage
from weft.client.async_client import AsyncSubscription as Subscription
from weft.client.async_client import AsyncTopic as Topic
from weft.client.async_client import connect
from weft.client.async_queue import AsyncQueue as Queue
from weft.client.consumer.async_consumer import AsyncConsumer as Consumer
from weft.client.consumer.message import AsyncMessage as Message
from weft.client.producer.async_producer import AsyncProducer as Producer
from weft.client.transaction.async_transaction import AsyncTransaction as Transaction
from weft.client.worker.async_worker import AsyncWorker as Worker

__all__ = [
    "Client",
    "Consumer",
    "Message",
    "Producer",
    "Queue",
    "Stage",
    "Subscription",
    "Topic",
    "Transaction",
    "Worker",
    "connect",
]
