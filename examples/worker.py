import weft


def handle(message: weft.Message) -> None:
    print("handled", message.body.decode(), flush=True)


with weft.connect("127.0.0.1:7700") as client:
    client.create_queue("orders", lease_ms=30_000, max_deliveries=5, dead_letter="orders.dead")
    retry = weft.Retry(attempts=5, backoff=weft.expo(1, 60))  # about 1, 2, 4, 8 seconds apart
    stats = client.queue("orders").work(handle, concurrency=8, retry=retry, time_limit_s=30)
    print(stats.summary())  # after SIGTERM or Ctrl-C, and a drain
