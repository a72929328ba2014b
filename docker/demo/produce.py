"""The demo's producer: pushes orders at a steady rate until SIGTERM or Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
import time

import weft

RATE = int(os.environ.get("DEMO_RATE", "200"))
QUEUE = "orders"


def main() -> None:
    stopping = threading.Event()
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, lambda *_: stopping.set())
    with weft.connect() as client:
        client.create_queue(QUEUE, max_deliveries=3, dead_letter=f"{QUEUE}.dead")
        sent, began = 0, time.monotonic()
        with client.queue(QUEUE).producer() as producer:
            while not stopping.wait(0.1):
                due = int((time.monotonic() - began) * RATE)
                for number in range(sent, due):
                    producer.send(f"order {number}".encode(), headers={"demo": "yes"})
                sent = due
    print(f"sent {sent} orders", flush=True)


if __name__ == "__main__":
    main()
