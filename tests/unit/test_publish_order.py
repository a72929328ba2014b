"""The checker of multicasts finds each kind of violation, and nothing in a correct run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.publish_order import Published, PublishOrder


def watched() -> PublishOrder:
    return PublishOrder(["ordered"], ["grouped-0", "grouped-1"])


def publish(
    order: PublishOrder, body: str, *queues: str, group: str | None = None, confirmed: bool = True
) -> None:
    publisher, _, number = body.partition("/")
    order.attempt(body, Published(publisher, int(number), queues, group))
    if confirmed:
        order.confirm(body)


def deliver(order: PublishOrder, queue: str, *bodies: str) -> None:
    for body in bodies:
        order.deliver(queue, body, f"{queue}:{body}")


def in_groups(order: PublishOrder, *bodies: str) -> None:
    for body in bodies:
        publish(order, body, "grouped-0", "grouped-1", group="g")


def test_a_correct_run_has_no_violation() -> None:
    order = watched()
    publish(order, "a/0", "plain", "ordered")
    publish(order, "a/1", "plain", confirmed=False)  # in doubt, and stored nowhere
    publish(order, "a/2", "plain", "ordered", confirmed=False)  # in doubt, and stored
    publish(order, "a/3", "ordered")
    in_groups(order, "b/0", "c/0", "b/1")
    deliver(order, "plain", "a/2", "a/0", "a/0")  # a redelivery
    deliver(order, "ordered", "a/0", "a/3", "a/2")  # executed late
    for queue in ("grouped-0", "grouped-1"):
        deliver(order, queue, "b/0", "c/0", "b/1", "b/0")
    order.confirm_ack("plain", "a/0")
    assert order.finish() == {}
    assert (order.confirmed, order.deliveries) == (5, 14)


def lost(order: PublishOrder) -> None:
    publish(order, "a/0", "plain", "ordered")
    deliver(order, "plain", "a/0")


def lost_everywhere(order: PublishOrder) -> None:
    publish(order, "a/0", "plain")


def partial(order: PublishOrder) -> None:
    publish(order, "a/0", "plain", "ordered", confirmed=False)
    deliver(order, "plain", "a/0")


def misrouted(order: PublishOrder) -> None:
    publish(order, "a/0", "plain")
    deliver(order, "plain", "a/0")
    deliver(order, "other", "a/0")


def agreed(order: PublishOrder, body: str, *queues: str, group: str | None = None) -> None:
    publisher, _, number = body.partition("/")
    order.attempt(body, Published(publisher, int(number), queues, group, agreed=True))
    order.confirm(body)


def cycle_without_a_key(order: PublishOrder) -> None:
    """By a message without a key, which conflicts with those of both groups."""
    both = ("ordered", "grouped-0")
    agreed(order, "a/0", *both, group="g")
    agreed(order, "b/0", *both)
    deliver(order, "ordered", "a/0", "b/0")
    deliver(order, "grouped-0", "b/0", "a/0")


def test_agreed_messages_of_other_keys_and_later_pushes_need_no_order() -> None:
    order = watched()
    agreed(order, "a/0", "ordered", "grouped-0", group="g")
    agreed(order, "b/0", "ordered", "grouped-0", group="h")
    publish(order, "a/1", "ordered")
    deliver(order, "ordered", "a/1", "a/0", "b/0")
    deliver(order, "grouped-0", "b/0", "a/0")
    assert order.finish() == {}


def doubled(order: PublishOrder) -> None:
    publish(order, "a/0", "plain")
    order.deliver("plain", "a/0", "1")
    order.deliver("plain", "a/0", "2")


def redelivered(order: PublishOrder) -> None:
    publish(order, "a/0", "plain")
    deliver(order, "plain", "a/0")
    order.confirm_ack("plain", "a/0")
    deliver(order, "plain", "a/0")


def out_of_order(order: PublishOrder) -> None:
    for body in ("a/0", "a/1"):
        publish(order, body, "ordered")
    deliver(order, "ordered", "a/1", "a/0")


def out_of_order_in_a_group(order: PublishOrder) -> None:
    in_groups(order, "b/0", "b/1")
    for queue in ("grouped-0", "grouped-1"):
        deliver(order, queue, "b/1", "b/0")


def cycle(order: PublishOrder) -> None:
    in_groups(order, "b/0", "c/0")
    deliver(order, "grouped-0", "b/0", "c/0")
    deliver(order, "grouped-1", "c/0", "b/0")


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lost, {"lost"}),
        (lost_everywhere, {"lost"}),
        (partial, {"partial"}),
        (misrouted, {"misrouted"}),
        (doubled, {"doubled"}),
        (redelivered, {"redelivered"}),
        (out_of_order, {"order"}),
        (out_of_order_in_a_group, {"order"}),
        (cycle, {"cycles"}),
        (cycle_without_a_key, {"cycles"}),
    ],
)
def test_a_violation_is_found(plant: Callable[[PublishOrder], None], found: set[str]) -> None:
    order = watched()
    plant(order)
    assert set(order.finish()) == found
