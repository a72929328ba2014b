"""Which queues a node takes for idle."""

from __future__ import annotations

import pytest

from tests.engine.rig import Rig
from weft.errors import InvalidArgument
from weft.proto import wire
from weft.proto.settings import Settings

MS = 5_000


class IdleRig(Rig):
    """A node that looks at its idle queues, as the node core does once a second."""

    def wait(self, ms: int) -> None:
        self.advance(ms)
        self.engine.idle_queues.sample()

    def idle_ms(self, queue: str) -> int:
        return self.engine.idle_queues.idle_ms(queue)

    @property
    def expired(self) -> list[str]:
        return self.engine.idle_queues.expired()


def rig_of(*queues: str) -> IdleRig:
    rig = IdleRig()
    for queue in queues:
        request = wire.CreateExpiringQueue(queue, Settings(lease_ms=60_000, expire_idle_ms=MS))
        assert rig.call(request) == wire.Created(True)
    rig.wait(0)
    return rig


def test_an_unused_queue_expires_and_another_does_not() -> None:
    rig = rig_of("q")
    rig.create("kept")
    rig.wait(MS - 1_000)
    assert rig.expired == []
    rig.wait(1_000)
    assert rig.expired == ["q"]
    assert [rig.idle_ms(name) for name in ("q", "kept", "nothing")] == [MS, 0, 0]


def test_messages_alone_do_not_keep_a_queue() -> None:
    rig = rig_of("q")
    rig.push("q", b"1")
    rig.wait(0)
    rig.wait(MS)
    assert rig.expired == ["q"]


@pytest.mark.parametrize("use", ["push", "pop", "empty pop", "ack", "duplicate"])
def test_a_use_keeps_a_queue(use: str) -> None:
    rig = rig_of("q", "idle")
    rig.push("q", b"1", batch=1)
    taken = rig.pop("q") if use in ("ack", "empty pop") else []
    rig.wait(0)
    rig.wait(MS - 1_000)
    if use == "push":
        rig.push("q", b"2")
    elif use == "duplicate":
        rig.push("q", b"1", batch=1)
    elif use == "ack":
        rig.ack("q", *taken)
    else:
        rig.pop("q")
    assert rig.idle_ms("q") == 0, "a use counts before the next look"
    rig.wait(2_000)
    assert rig.expired == ["idle"]


def test_a_lease_and_a_waiting_pop_keep_a_queue() -> None:
    rig = rig_of("leased", "waiting", "idle")
    rig.push("leased", b"1")
    rig.pop("leased")
    rig.ask(wire.Pop("waiting", 1, 60_000))
    rig.wait(0)
    rig.wait(3 * MS)
    assert rig.expired == ["idle"]


def test_a_restarted_node_has_used_every_queue() -> None:
    rig = rig_of("q")
    rig.wait(MS)
    assert rig.expired == ["q"]
    rig.restart()
    rig.wait(0)
    assert rig.expired == []


def test_the_setting_can_be_changed_and_removed() -> None:
    rig = rig_of("q")
    rig.wait(MS)
    rig.update("q", expire_idle_ms=0)
    assert (rig.expired, rig.engine.idle_queues.any) == ([], False)
    rig.update("q", expire_idle_ms=MS)
    rig.wait(0)
    rig.purge("q")
    rig.wait(0)
    rig.wait(MS)
    assert rig.expired == ["q"]
    rig.delete("q")
    assert (rig.expired, rig.engine.idle_queues.any) == ([], False)


def test_bad_values_are_refused() -> None:
    rig = Rig()
    with pytest.raises(InvalidArgument, match="expire_idle_ms must be"):
        rig.call(wire.CreateExpiringQueue("q", Settings(expire_idle_ms=1)))
    with pytest.raises(InvalidArgument, match="create_expiring_queue"):
        rig.call(wire.CreateQueue("q", Settings(expire_idle_ms=MS)))
