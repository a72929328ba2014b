import weft

with weft.connect("127.0.0.1:7700") as client:
    client.create_queue("orders", lease_ms=30_000, max_deliveries=5, dead_letter="orders.dead")
    orders = client.queue("orders")

    orders.push(b"one", headers={"from": "readme"})  # on disk when push returns
    orders.push_many([b"two", b"three"])
    orders.push(b"four", dedup_key="order-4")
    orders.push(b"four", dedup_key="order-4")  # the same push: stored once

    message = orders.pop(wait_ms=1000)  # leased for 30 s
    assert message is not None
    print(message.id, message.body, message.headers, message.deliveries)
    message.ack()

    rest = orders.pop_many(10, wait_ms=1000)
    print([each.body for each in rest])
    orders.ack_many(rest)
    print(orders.stats().ready, "left")
