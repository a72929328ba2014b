"""The demo's consumer: acks orders, and nacks some of them to demonstrate dead letters."""

from __future__ import annotations

import os
import signal
import threading
import time

import weft
from weft import QueueNotFound

QUEUE = "orders"
BAD_EVERY = int(os.environ.get("DEMO_BAD_EVERY", "1000"))


def work(client: weft.Client, stopping: threading.Event) -> int:
    done = 0
    orders = client.queue(QUEUE).consume(wait_ms=500, idle_ms=1000)
    with orders:
        for message in orders:
            number = int(message.body.rsplit(b" ", 1)[1])
            if number % BAD_EVERY == BAD_EVERY - 1:
                message.nack()
            else:
                message.ack()
                done += 1
            if stopping.is_set():
                break
    return done


def main() -> None:
    stopping = threading.Event()
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, lambda *_: stopping.set())
    done = 0
    with weft.connect() as client:
        while not stopping.is_set():
            try:
                done += work(client, stopping)
            except QueueNotFound:
                time.sleep(0.5)  # The producer creates the queue.
    print(f"acked {done} orders", flush=True)


if __name__ == "__main__":
    main()
